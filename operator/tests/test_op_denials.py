"""What the cluster's admission denies: told in its words, tried again now and then, in nothing else's way."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from op_golden import SETTINGS
from op_memory import operator, update, with_service
from op_world import body, hash_of, pod, report

from headrace_operator import names
from headrace_operator.api import Key
from headrace_operator.decide.admission import is_denial
from headrace_operator.errors import ApiError

KEY = Key("llm", "chat")
WORDS = (
    "ValidatingAdmissionPolicy 'images' with binding 'all' denied request: only images of registry.example"
)
DENIED = ApiError(422, f'PATCH /apis/x: deployments.apps "chat" is forbidden: {WORDS}')
NEW = {"engine": {"image": "evil/vllm:2"}, "scheduling": {"policy": "LARRY"}, "replicas": 5}
OBJECTS = ["LLMRoute", "ConfigMap", "NetworkPolicy", "Service", "PodDisruptionBudget", "Deployment"]


class Life:
    """An operator on a clock that the test moves."""

    def __init__(self, **spec):
        self.now = 0.0
        self.memory = with_service(**spec)
        self.start()

    def start(self, settings=SETTINGS):
        self.running = operator(self.memory, settings, clock=lambda: self.now)

    async def settle(self):
        """Until nothing is written; the seconds that the operator then waits."""
        for _ in range(10):
            before = len(self.memory.writes)
            again = await self.running.reconcile(KEY)
            if len(self.memory.writes) == before:
                return again
            self.now += 0.1
        raise AssertionError("it does not settle")

    async def reconcile(self):
        """One pass, whatever comes of it."""
        with suppress(ApiError):
            await self.running.reconcile(KEY)

    async def change(self, **spec):
        update(self.memory, **spec)
        self.running.cache.put(self.memory.objects["LLMService", "chat"])
        return await self.settle()

    def condition(self, kind):
        found = self.memory.objects["LLMService", "chat"]["status"]["conditions"]
        return next(c for c in found if c["type"] == kind)

    @property
    def deployment(self):
        return self.memory.objects["Deployment", "chat"]

    @property
    def policy(self):
        return json.loads(self.memory.objects["ConfigMap", "chat-policy"]["data"]["policy.json"])["policy"]


def image_of(deployment):
    return deployment["spec"]["template"]["spec"]["containers"][0]["image"]


async def denied(**spec):
    """A service that runs, and a change of it of which the new image is denied."""
    life = Life()
    await life.settle()
    life.memory.refusal = DENIED
    life.memory.refuses = lambda manifest, dry_run: image_of(manifest) == "evil/vllm:2"
    await life.change(**{**NEW, **spec})
    return life


async def test_a_denied_template_is_refused_in_the_deniers_words_and_the_rest_is_carried_out():
    life = await denied()
    accepted = life.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "AdmissionDenied")
    assert WORDS in accepted["message"]
    assert "/apis/x" not in accepted["message"]
    assert (life.policy, life.deployment["spec"]["replicas"]) == ("LARRY", 5)
    assert image_of(life.deployment) == "example/vllm:1"
    assert life.condition("PolicyApplied")["observedGeneration"] == 2
    assert life.condition("Ready")["observedGeneration"] == 1
    for kind in ("Ready", "Reconciling", "Degraded"):
        assert "as the spec asks" not in life.condition(kind)["message"]
    life.memory.refusal = None
    life.now += 60.0
    await life.settle()
    assert life.condition("Accepted")["status"] == "True"
    assert image_of(life.deployment) == "evil/vllm:2"


async def test_a_denied_template_is_the_same_to_a_fresh_operator():
    life = await denied()
    before, life.now = life.memory.owned(), 7.0
    life.start()
    life.memory.writes.clear()
    await life.settle()
    assert (life.memory.owned(), life.memory.writes) == (before, [])


async def test_a_denial_is_tried_again_at_growing_distances_however_many_events_come():
    life = await denied()
    life.memory.writes.clear()
    tries = []
    for second in range(200):
        life.now = 100.0 + second
        before = life.memory.dry_runs
        again = await life.running.reconcile(KEY)
        assert 0.0 < again <= 60.0
        if life.memory.dry_runs > before:
            tries.append(second)
    assert tries == [0, 30, 90, 150]
    assert life.memory.writes == []


async def test_words_are_bounded():
    life = Life()
    await life.settle()
    life.memory.refusal = ApiError(403, "PATCH /x: " + "y" * 100_000)
    await life.change(**NEW)
    assert len(life.condition("Accepted")["message"]) < 2000


@pytest.mark.parametrize("dry_run_too", [True, False])
@pytest.mark.parametrize("kind", OBJECTS)
async def test_whatever_object_is_denied_all_others_are_written_and_then_nothing_is(kind, dry_run_too):
    life = Life()
    await life.settle()
    life.memory.refusal = DENIED
    life.memory.refused = kind
    # Any change of the object is denied; a Deployment's if it is of the template.
    life.memory.refuses = lambda manifest, dry_run: (
        (kind != "Deployment" or image_of(manifest) == "evil/vllm:2") and (dry_run_too or not dry_run)
    )
    changed = {**NEW, "disruption": {"maxUnavailable": 1}, "routing": {"balancer": "Random"}}
    for name, item in list(life.memory.objects.items()):
        if name[0] == kind != "Deployment":
            life.now += 10.0
            item["metadata"]["annotations"][names.APPLIED_HASH] = "another"
            life.running.cache.put(life.memory.store(item))
    await life.change(**changed)
    assert life.condition("Accepted")["reason"] == "AdmissionDenied"
    assert f"{kind} chat" in life.condition("Accepted")["message"]
    assert life.deployment["spec"]["replicas"] == 5
    assert image_of(life.deployment) == "example/vllm:1"
    assert life.policy == ("FCFS" if kind == "ConfigMap" else "LARRY")
    life.memory.writes.clear()
    for _ in range(20):
        life.now += 20.0
        await life.running.reconcile(KEY)
    assert life.memory.writes == []


async def test_of_a_service_that_is_denied_at_its_beginning_nothing_is_made():
    life = Life()
    life.memory.refusal = DENIED
    assert await life.settle() > 0.0
    assert {kind for kind, _ in life.memory.objects} == {"LLMService"}
    assert life.condition("Accepted")["reason"] == "AdmissionDenied"
    assert "Nothing runs" in life.condition("Accepted")["message"]
    assert life.condition("Ready")["reason"] == "NotAccepted"


async def test_a_permission_that_the_operator_lacks_is_no_denial_and_stops_nothing_else():
    life = Life()
    await life.settle()
    life.memory.refusal = ApiError(
        403, 'PATCH /x: deployments.apps "chat" is forbidden: User "o" cannot patch'
    )
    update(life.memory, **NEW)
    life.running.cache.put(life.memory.objects["LLMService", "chat"])
    with pytest.raises(ApiError, match="cannot patch"):
        await life.running.reconcile(KEY)
    assert life.condition("Accepted")["status"] == "True"
    assert life.condition("Degraded")["reason"] == "ReconcileError"
    assert life.policy == "LARRY"


async def test_a_deployment_that_the_api_server_refuses_does_not_hold_up_what_is_live():
    life = Life()
    await life.settle()
    before = life.deployment["spec"]["template"]
    life.memory.refusal = ApiError(422, "spec.template.spec.affinity: wrong")
    life.memory.refuses = lambda manifest, dry_run: "affinity" in manifest["spec"]["template"]["spec"]
    affinity = {"affinity": {"nodeAffinity": {"bad": 1}}}
    await life.change(scheduling={"policy": "LARRY"}, podTemplate=affinity, replicas=7)
    assert life.condition("Accepted")["reason"] == "InvalidSpec"
    assert (life.policy, life.deployment["spec"]["replicas"]) == ("LARRY", 7)
    assert life.deployment["spec"]["template"] == before


async def test_a_template_that_is_refused_by_the_operator_does_not_hold_up_what_is_live():
    life = Life()
    await life.settle()
    before = life.deployment["spec"]["template"]
    volumes = {"volumes": [{"name": "host", "hostPath": {"path": "/etc"}}]}
    await life.change(scheduling={"policy": "LARRY"}, podTemplate=volumes, replicas=7)
    assert life.condition("Accepted")["reason"] == "HostPathNotAllowed"
    assert (life.policy, life.deployment["spec"]["replicas"]) == ("LARRY", 7)
    assert life.deployment["spec"]["template"] == before


async def test_of_what_is_live_only_what_is_refused_is_not_carried_out():
    life = Life()
    await life.settle()
    before = life.memory.objects["LLMRoute", "chat"]["spec"]
    await life.change(
        routing={"access": {"allowedClients": ["a"]}}, scheduling={"policy": "LARRY"}, replicas=7
    )
    assert life.condition("Accepted")["reason"] == "ApiKeysRequired"
    assert (life.policy, life.deployment["spec"]["replicas"]) == ("LARRY", 7)
    assert life.memory.objects["LLMRoute", "chat"]["spec"] == before


KEYS = {"limits": {"requestsPerMinutePerClient": 6}}
HOST = {"volumes": [{"name": "host", "hostPath": {"path": "/data"}}]}


@pytest.mark.parametrize(
    ("spec", "setting", "reason"),
    [
        ({"routing": KEYS}, "gateway_api_keys", "ApiKeysRequired"),
        ({"podTemplate": HOST}, "allow_host_path", "HostPathNotAllowed"),
        (
            {"podTemplate": {"serviceAccountName": "weights"}},
            "allow_service_account",
            "ServiceAccountNotAllowed",
        ),
    ],
)
async def test_what_an_installation_no_longer_allows_is_told_and_holds_up_nothing_else(spec, setting, reason):
    """As when the chart's API keys are taken away: the next operator sees the service as it was accepted."""
    life = Life(**spec)
    life.start(replace(SETTINGS, **{setting: True}))
    await life.settle()
    assert life.condition("Accepted")["status"] == "True"
    template, route = life.deployment["spec"]["template"], life.memory.objects["LLMRoute", "chat"]["spec"]
    life.start()
    await life.settle()
    assert life.condition("Accepted")["reason"] == reason
    life.memory.writes.clear()
    await life.settle()
    assert life.memory.writes == []
    await life.change(**spec, scheduling={"policy": "LARRY"}, replicas=7)
    assert (life.policy, life.deployment["spec"]["replicas"]) == ("LARRY", 7)
    assert life.deployment["spec"]["template"] == template
    assert life.memory.objects["LLMRoute", "chat"]["spec"] == route


async def test_a_name_that_is_anothers_is_let_go_though_the_route_is_refused():
    life = Life(model={"source": "hf://a/b", "servedName": "llm/later"})
    await life.settle()
    routing = {"routing": {"access": {"allowedClients": ["a"]}}}
    await life.change(model={"source": "hf://a/b", "servedName": "llm/later"}, **routing)
    assert "llm/later" in life.memory.objects["LLMRoute", "chat"]["spec"]["models"]
    life.running.cache.put(body("later"))
    await life.settle()
    assert life.memory.objects["LLMRoute", "chat"]["spec"]["models"] == ["llm/chat"]


async def test_a_denied_template_that_runs_is_scaled_and_nothing_else_of_it_is_written():
    life = Life()
    await life.settle()
    before = life.deployment["spec"]["template"]
    life.memory.refusal = DENIED
    await life.change(scheduling={"policy": "LARRY"}, replicas=5)
    assert life.condition("Accepted")["reason"] == "AdmissionDenied"
    assert life.condition("Accepted")["message"].count(WORDS) == 1
    assert (life.policy, life.deployment["spec"]["replicas"]) == ("LARRY", 5)
    assert life.deployment["spec"]["template"] == before
    life.memory.writes.clear()
    for _ in range(20):
        life.now += 20.0
        await life.running.reconcile(KEY)
    assert life.memory.writes == []


async def test_all_that_is_denied_is_told():
    life = Life()
    await life.settle()
    life.memory.refusal = ApiError(403, "PATCH /x: no ConfigMaps today")
    life.memory.refused = "ConfigMap"
    await life.change(podTemplate=HOST, scheduling={"policy": "LARRY"}, replicas=5)
    accepted = life.condition("Accepted")
    assert accepted["reason"] == "HostPathNotAllowed"
    assert "no ConfigMaps today" in accepted["message"]
    assert "carried out" not in accepted["message"]
    assert life.deployment["spec"]["replicas"] == 5
    assert life.condition("PolicyApplied")["observedGeneration"] == 1  # it tells of the policy before


async def test_pods_are_not_sent_to_a_policy_that_is_denied():
    life = Life()
    await life.settle()
    life.memory.store(pod("a"))
    life.running.cache.put(life.memory.objects["Pod", "a"])
    life.running.sidecars.said = {"a": report(hash_of(body()))}
    await life.settle()
    life.memory.refusal, life.memory.refused = DENIED, "ConfigMap"
    assert await life.change(scheduling={"policy": "LARRY"}) > 1.0
    assert life.memory.objects["Pod", "a"]["metadata"].get("annotations") is None


@pytest.mark.parametrize("words", ["claims are kept here", 'x is forbidden: User "o" cannot delete'])
async def test_what_fails_after_the_deployment_was_written_does_not_take_that_back(words):
    life = Life(accelerator={"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}})
    await life.settle()
    life.memory.undeletable = ApiError(403, f"DELETE /x: {words}")
    update(life.memory, accelerator={"type": "CPU"}, engine={"image": "example/vllm:2"})
    life.running.cache.put(life.memory.objects["LLMService", "chat"])
    await life.reconcile()
    assert image_of(life.deployment) == "example/vllm:2"
    life.memory.writes.clear()
    for _ in range(20):
        life.now += 20.0
        await life.reconcile()
    assert [write for write in life.memory.writes if write[1] == "Deployment"] == []
    assert image_of(life.deployment) == "example/vllm:2"


async def test_what_runs_is_healed_while_a_change_of_it_is_denied():
    life = await denied()
    life.now += 10.0
    edited = dict(life.deployment)
    edited["spec"] = {**edited["spec"], "replicas": 1}
    life.running.cache.put(life.memory.store(edited))
    await life.settle()
    assert life.deployment["spec"]["replicas"] == 5
    assert image_of(life.deployment) == "example/vllm:1"


@pytest.mark.parametrize(
    ("code", "words", "is_one"),
    [
        (403, 'deployments.apps "chat" is forbidden: ' + WORDS, True),
        (422, 'deployments.apps "chat" is invalid: ' + WORDS, True),
        (400, 'admission webhook "validate.kyverno.svc-fail" denied the request: no', True),
        (403, 'admission webhook "validation.gatekeeper.sh" denied the request: [x] no', True),
        (
            403,
            'configmaps "chat-policy" is forbidden: exceeded quota: q, requested: count/configmaps=1',
            True,
        ),
        (
            403,
            'deployments.apps "chat" is forbidden: User "system:sa" cannot patch resource "deployments"',
            False,
        ),
        (
            403,
            "x is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource",
            False,
        ),
        (
            403,
            "x is forbidden: unable to create new content in namespace y because it is being terminated",
            False,
        ),
        (422, "spec.template.spec.affinity: wrong", False),
        (500, 'Internal error occurred: failed calling webhook "x": connection refused', False),
        (503, f"unavailable; the last one: {WORDS}", False),
        (0, "unreachable", False),
    ],
)
def test_denials_are_told_from_other_errors(code, words, is_one):
    assert is_denial(ApiError(code, f"PATCH /apis/x: {words}")) is is_one


async def test_a_webhook_that_cannot_be_asked_stops_only_what_it_is_asked_about():
    life = Life()
    await life.settle()
    life.memory.refusal = ApiError(
        500, 'PATCH /x: Internal error occurred: failed calling webhook "x": refused'
    )
    update(life.memory, scheduling={"policy": "LARRY"}, replicas=7)
    life.running.cache.put(life.memory.objects["LLMService", "chat"])
    with pytest.raises(ApiError, match="failed calling webhook"):
        await life.running.reconcile(KEY)
    assert life.policy == "LARRY"
    assert life.condition("Degraded")["reason"] == "ReconcileError"
