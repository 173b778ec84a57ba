"""GPUPools on a real API server: groups come, change and go while their services run."""

import json
import time
from dataclasses import replace

import pytest
from op_devices import engine, spec
from op_kube import eventually, gpupool, ok
from op_kubelet import FakeNode
from op_planning import asked
from op_simulate_pool import LLAMA

from headrace_engine.contracts import decode, dumps, text_hash
from headrace_engine.contracts.traffic import WINDOW_SECONDS
from headrace_engine.contracts.turn_group import TurnGroup

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator"), pytest.mark.timeout(300)]

OF_A_POOL = ("deployments", "services", "configmaps", "networkpolicies")
BAD = {
    "no groups": ({}, ["spec.groups", "at least 1"]),
    "a group without members": ({"a": []}, ["spec.groups[0].members", "at least 1"]),
    "a service in two groups": ({"a": ["chat"], "b": ["code", "chat"]}, ["a service is in one group only"]),
    "a service twice in a group": ({"a": ["chat", "chat"]}, ["spec.groups[0].members[1]", "Duplicate"]),
    "a name that no object could have": ({"A_1": ["chat"]}, ["spec.groups[0].name", "should match"]),
    "a name that is too long": ({"a" * 21: ["chat"]}, ["spec.groups[0].name", "20"]),
}


BAD_PLACEMENT = {
    "nothing": ({}, ["set groups, placement, or both"]),
    "no services": ({"services": []}, ["spec.placement.services", "at least 1"]),
    "no kind of GPUs": ({"gpus": {}}, ["spec.placement.gpus.type", "Required"]),
    "no GPUs": ({"gpus": {"type": "H100", "count": 0}}, ["spec.placement.gpus.count", "1"]),
    "nodes of no GPUs": ({"gpus": {"type": "H100", "perNode": 0}}, ["spec.placement.gpus.perNode", "1"]),
    "a service twice": ({"services": [{"name": "chat"}] * 2}, ["spec.placement.services[1]", "Duplicate"]),
    "another mode": ({"mode": "Manual"}, ["spec.placement.mode", "Recommend"]),
}


def turn_group(kube, service):
    """What the service's engines are told; None: nothing."""
    found = (kube.get("configmaps", f"{service}-policy") or {}).get("data", {}).get("turn-group.json")
    return json.loads(found) if found else None


def has_learnt(node, told):
    """Whether all engines know of this group, and of no other; None: of none."""
    wanted = text_hash(dumps(decode(TurnGroup, told)).encode()) if told else ""
    return {engine.turn_group for engine in node.engines.values()} == {wanted}


def of_pool(kube):
    """Names of what the operator made for pools."""
    mine = {"labelSelector": "headrace.dev/gpu-pool"}
    return {item["metadata"]["name"] for plural in OF_A_POOL for item in kube.list(plural, **mine)}


def planned_pool(**fields):
    """A GPUPool that asks for a plan for two services."""
    return gpupool(
        placement={"gpus": {"type": "H100"}, "services": [{"name": "chat"}, {"name": "code"}]} | fields
    )


def pods(kube):
    return {pod["metadata"]["uid"] for pod in kube.list("pods", labelSelector="headrace.dev/service")}


def condition(kube, kind, pool="shared"):
    return kube.condition(pool, kind, "gpupools")[:2]


@pytest.mark.parametrize("case", BAD)
def test_a_bad_pool_is_refused_with_field_and_fix(kube, case):
    groups, words = BAD[case]
    answer = kube.create("gpupools", gpupool(**groups))
    assert answer.status_code == 422, answer.text
    message = answer.json()["message"]
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"a": ["code"]}, "placement.services: mode Auto makes their groups: take them out of groups"),
        (
            {"auto-1": ["x"]},
            "groups: names that begin with auto- are those that mode Auto makes: rename them",
        ),
    ],
)
def test_groups_that_mode_auto_would_make_are_refused(kube, groups, words):
    pool = planned_pool(mode="Auto")
    pool["spec"]["groups"] = gpupool(**groups)["spec"]["groups"]
    answer = kube.create("gpupools", pool)
    assert answer.status_code == 422, answer.text
    assert words in answer.json()["message"]


@pytest.mark.parametrize("case", BAD_PLACEMENT)
def test_a_bad_placement_is_refused_with_field_and_fix(kube, case):
    fields, words = BAD_PLACEMENT[case]
    answer = kube.create("gpupools", planned_pool(**fields) if fields else {**gpupool(), "spec": {}})
    assert answer.status_code == 422, answer.text
    message = answer.json()["message"]
    assert all(word in message for word in words), message


def test_a_plan_is_made_from_what_engines_were_asked_and_goes_with_its_question(kube):
    ok(kube.apply("gpupools", planned_pool()))
    eventually(lambda: condition(kube, "Planned") == ("False", "MemberNotFound"))
    assert condition(kube, "Ready") == ("True", "AllGroupsReady")
    for name in ("chat", "code"):
        kube.start(name, model={"source": LLAMA}, engine={"image": "i", "maxModelLen": 8192})
    start = int(time.time()) // WINDOW_SECONDS * WINDOW_SECONDS
    with FakeNode(kube) as node:
        node.windows = tuple(replace(each, start=start - 20 * (n + 1)) for n, each in enumerate(asked(3)))
        ok(kube.apply("gpupools", planned_pool(gpus={"type": "H100", "perNode": 4})))
        eventually(lambda: condition(kube, "Planned") == ("True", "PlanMade"), 150)
        plan = kube.get("gpupools", "shared")["status"]["plan"]
        assert (plan["gpus"], plan["gpusToday"]) == (1, 4), "two replicas each"
        assert [member["service"] for member in plan["groups"][0]["members"]] == ["chat", "code"]
        assert {each["name"]: each["requests"] for each in plan["services"]} == {"chat": 12, "code": 12}
        assert of_pool(kube) == set(), "nothing is done about it"

        ok(kube.apply("gpupools", planned_pool(gpus={"type": "TPU"})))
        eventually(lambda: condition(kube, "Planned") == ("False", "NotEstimable"), 60)
        assert kube.get("gpupools", "shared")["status"]["plan"] == plan, "the last one stays"
        ok(kube.apply("gpupools", gpupool(a=["chat"])))
        eventually(lambda: "plan" not in kube.get("gpupools", "shared")["status"])


def test_the_longest_names_can_be_made(kube):
    pool, group = "p" * 35, "g" * 20
    ok(kube.create("gpupools", gpupool(pool, **{group: ["chat"]})))
    eventually(lambda: of_pool(kube) == {f"{pool}-{group}-turns"})
    assert kube.create("gpupools", gpupool("p" * 36, a=["chat"])).status_code == 422


def test_groups_come_change_and_go_while_their_services_run(kube):
    ok(kube.apply("gpupools", gpupool(fast=["chat", "code"])))
    eventually(lambda: condition(kube, "Ready") == ("False", "MemberNotFound"))
    kube.start("chat")
    kube.start("code")
    with FakeNode(kube) as node:
        eventually(lambda: turn_group(kube, "chat"))
        eventually(lambda: turn_group(kube, "code") == turn_group(kube, "chat"))
        told = turn_group(kube, "chat")
        assert told["host"] == kube.get("services", "shared-fast-turns")["spec"]["clusterIP"]
        eventually(lambda: condition(kube, "Ready") == ("True", "AllGroupsReady"))
        eventually(lambda: len(pods(kube)) == 4)
        before = pods(kube)
        # As the kubelet does it within seconds of a refresh, and by itself only after a minute or more.
        eventually(lambda: has_learnt(node, told), 20)

        ok(kube.apply("gpupools", gpupool(fast=["chat"], slow=["code"])))
        eventually(lambda: turn_group(kube, "code") not in (None, told))
        assert turn_group(kube, "chat") == told

        ok(kube.apply("gpupools", gpupool(fast=["chat"])))
        eventually(lambda: of_pool(kube) == {"shared-fast-turns"})
        eventually(lambda: turn_group(kube, "code") is None)

        ok(kube.delete("gpupools", "shared"))
        eventually(lambda: turn_group(kube, "chat") is None)
        eventually(lambda: has_learnt(node, None), 20)
        eventually(lambda: not of_pool(kube), 180)  # the collector looks for new kinds twice a minute
        assert pods(kube) == before, "nothing restarts"


def test_a_service_stays_in_the_older_pool_and_the_younger_says_so(kube):
    kube.start("chat")
    ok(kube.create("gpupools", gpupool("first", a=["chat"])))
    eventually(lambda: turn_group(kube, "chat"))
    told = turn_group(kube, "chat")
    ok(kube.create("gpupools", gpupool("second", b=["chat"])))
    eventually(lambda: condition(kube, "Accepted", "second") == ("False", "MemberTaken"))
    assert turn_group(kube, "chat") == told
    assert condition(kube, "Accepted", "first") == ("True", "Valid")
    ok(kube.delete("gpupools", "first"))
    eventually(lambda: condition(kube, "Accepted", "second") == ("True", "Valid"))
    eventually(lambda: turn_group(kube, "chat") not in (None, told))


def test_what_somebody_deletes_or_edits_comes_back(kube):
    kube.start("chat")
    ok(kube.apply("gpupools", gpupool(fast=["chat"])))
    eventually(lambda: turn_group(kube, "chat"))
    told = turn_group(kube, "chat")
    ok(kube.delete("configmaps", "shared-fast-turns"))
    ok(kube.patch("deployments", "shared-fast-turns", {"spec": {"replicas": 0}}))
    eventually(lambda: kube.get("configmaps", "shared-fast-turns"))
    eventually(lambda: kube.get("deployments", "shared-fast-turns")["spec"]["replicas"] == 1)
    eventually(lambda: turn_group(kube, "chat") == told)


def claim_of(kube, deployment):
    """What pods of a Deployment name: a group's claim, or the template of their own."""
    pod = (kube.get("deployments", deployment) or {}).get("spec", {}).get("template", {}).get("spec", {})
    [named] = pod.get("resourceClaims") or [{}]
    return named.get("resourceClaimName") or named.get("resourceClaimTemplateName")


def claims(kube):
    return [
        claim["metadata"]["name"]
        for claim in kube.list("resourceclaims", labelSelector="headrace.dev/gpu-pool")
    ]


def allocate(kube, claim):
    """Give a claim its device and a pod, as the scheduler does."""
    container = {"name": "engine", "image": "none"}
    pod = ok(kube.create("pods", {"metadata": {"name": "holder"}, "spec": {"containers": [container]}}))
    device = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-3"}
    status = {
        "allocation": {"devices": {"results": [device]}},
        "reservedFor": [{"resource": "pods", "name": "holder", "uid": pod["metadata"]["uid"]}],
    }
    ok(kube.patch("resourceclaims", claim, {"status": status}, "status"))


def test_members_share_one_claim_that_their_server_holds_and_leave_it_with_their_pool(kube):
    for name in ("chat", "code"):
        kube.start(name, replicas=1, **spec())
    ok(kube.apply("gpupools", gpupool(small=["chat", "code"])))
    [claim] = eventually(lambda: claims(kube))
    eventually(lambda: claim_of(kube, "chat") == claim_of(kube, "code") == claim)
    eventually(lambda: not kube.list("resourceclaimtemplates"))
    assert condition(kube, "Placed") == ("False", "DevicesNotAllocated")
    assert kube.get("deployments", "shared-small-turns")["spec"]["replicas"] == 0

    allocate(kube, claim)
    eventually(lambda: kube.get("deployments", "shared-small-turns")["spec"]["replicas"] == 1)
    assert claim_of(kube, "shared-small-turns") == claim
    eventually(lambda: kube.condition("shared", "Placed", "gpupools")[2] == "group small: on node-a/gpu-3")

    ok(kube.patch("llmservices", "code", {"spec": {"engine": engine(70)}}))
    eventually(lambda: kube.condition("code", "Accepted")[:2] == ("False", "MemoryOvercommitted"))
    eventually(lambda: condition(kube, "Accepted") == ("False", "MemoryOvercommitted"))
    assert kube.condition("chat", "Accepted")[:2] == ("True", "Valid")

    two = engine(40, tensorParallelSize=2)
    ok(kube.patch("llmservices", "code", {"spec": {"engine": two}}))
    eventually(lambda: claim_of(kube, "chat") == claim_of(kube, "code") != claim)
    assert len(claims(kube)) == 2, "a pod has the first still"
    ok(kube.delete("pods", "holder"))
    eventually(lambda: claim not in claims(kube))

    [claim] = claims(kube)
    kept = ["example.com/kept"]  # as the claims of pods have one
    ok(kube.patch("resourceclaims", claim, {"metadata": {"finalizers": kept}}))
    ok(kube.delete("resourceclaims", claim))
    eventually(lambda: claim_of(kube, "chat") == claim_of(kube, "code") != claim)
    another = claim_of(kube, "chat")
    ok(kube.patch("resourceclaims", claim, {"metadata": {"finalizers": []}}))
    eventually(lambda: claims(kube) == [another])

    ok(kube.delete("gpupools", "shared"))
    eventually(lambda: (claim_of(kube, "chat"), claim_of(kube, "code")) == ("chat-gpu", "code-gpu"))
