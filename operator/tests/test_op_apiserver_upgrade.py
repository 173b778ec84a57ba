"""Releases of the operator that render pods otherwise, over services that run, on a real API server."""

import copy
import json
import sys

import pytest
import yaml
from op_desk import Desk
from op_kube import CRD, apply_crd, eventually, install_crd, llmservice, ok
from op_kubelet import FakeNode

from headrace_operator.desired import pod

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

GPU = {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}
CASES = {"running": {}, "with devices": {"accelerator": GPU}, "scaled to zero": {"replicas": 0}}
RENDERS = sys.modules["headrace_operator.desired.deployment"]  # the package has a function of that name
THIS_RELEASE = pod.pod_template


def ask(kube, **spec):
    model = {"source": "hf://a/b", "servedName": f"m-{kube.namespace}"}
    ok(kube.apply("llmservices", llmservice(**{"model": model, **spec})))


def other_release(service, image, settings):
    """A template with another argument, variable and mount, as a next release might render it."""
    template = copy.deepcopy(THIS_RELEASE(service, image, settings))
    engine = template["spec"]["containers"][0]
    engine["args"].append("--new-default=1")
    engine["env"].append({"name": "FROM_ANOTHER_RELEASE", "value": "1"})
    template["spec"]["volumes"].append({"name": "other", "emptyDir": {}})
    template["metadata"]["annotations"]["example.com/release"] = "2"
    return template


def running(kube):
    """The Deployment as far as it matters for what runs, and its replica sets."""
    live = kube.get("deployments", "chat")
    sets = sorted(item["metadata"]["name"] for item in kube.list("replicasets"))
    return live["metadata"]["uid"], live["metadata"]["generation"], live["spec"]["template"], sets


async def ready(desk, kube, count):
    """All replicas serve, and the operator has seen it."""
    while (kube.get("deployments", "chat")["status"].get("readyReplicas") or 0) != count:
        await desk.settle()
    await desk.settle()


@pytest.mark.parametrize("served", [False, True], ids=["never ready", "ready"])
@pytest.mark.parametrize("case", CASES)
async def test_an_upgrade_and_a_rollback_leave_engines_and_deployment_alone(  # noqa: PLR0917 fixtures
    api, own_api, kube, monkeypatch, case, served
):
    """Invariant 11: another rendering restarts no engine and moves no generation, there and back."""
    desk = Desk(api, own_api, kube.namespace)
    ask(kube, **CASES[case])
    with FakeNode(kube) as node:
        if not served:
            node.problem = {"phase": "Pending"}
        await desk.settle()
        if served:
            await ready(desk, kube, CASES[case].get("replicas", 2))
        before, writes = running(kube), len(desk.wire.writes)
        for release in (other_release, THIS_RELEASE):
            monkeypatch.setattr(RENDERS, "pod_template", release)
            await desk.settle()
            assert running(kube) == before
        assert desk.wire.writes[writes:] == []


async def test_a_scaled_service_keeps_its_template_under_another_release(api, own_api, kube, monkeypatch):
    """Invariant 11: what is live of a spec is carried out by the next release without a restart."""
    desk = Desk(api, own_api, kube.namespace)
    ask(kube)
    await desk.settle()
    _, generation, template, sets = running(kube)
    monkeypatch.setattr(RENDERS, "pod_template", other_release)
    ask(kube, replicas=3, scheduling={"policy": "LARRY"})
    await desk.settle()
    assert running(kube)[1:] == (generation + 1, template, sets)
    assert kube.get("deployments", "chat")["spec"]["replicas"] == 3
    ask(kube, replicas=3, engine={"image": "example/vllm:2"})
    await desk.settle()
    [engine] = kube.get("deployments", "chat")["spec"]["template"]["spec"]["containers"]
    assert "--new-default=1" in engine["args"]  # its own next rollout takes the new rendering


LEFT = {"econoServe": ("variant", "Full"), "accelGen": ("selection", "NearestFit")}


def with_settings_that_left(definition):
    """The definition as an older release had it, with a default that the API server stores."""
    definition = yaml.safe_load(definition)
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for block, (name, value) in LEFT.items():
        settings = spec["properties"]["scheduling"]["properties"][block]["properties"]
        settings[name] = {"type": "string", "default": value}
    return yaml.safe_dump(definition)


def stored(kube):
    """Those of the settings that left which the API server shows of the service."""
    scheduling = kube.get("llmservices", "chat")["spec"]["scheduling"]
    return {name for block, (name, _) in LEFT.items() if name in scheduling.get(block, {})}


async def test_settings_that_left_the_api_roll_no_pods_and_take_no_other_setting_with_them(
    api, own_api, kube, crd
):
    """Invariant 11: neither operator nor engines trip over what an older definition stored."""
    desk = Desk(api, own_api, kube.namespace)
    scheduling = {"policy": "EconoServe", "econoServe": {"reservedPercent": 5}, "accelGen": {"gamma": 500}}
    apply_crd(kube, with_settings_that_left(CRD.read_text()))
    try:
        with FakeNode(kube):
            eventually(lambda: ask(kube, scheduling=scheduling) or stored(kube) == {"variant", "selection"})
            await desk.settle()
            await ready(desk, kube, 2)
            before, policy = running(kube), kube.get("configmaps", "chat-policy")["data"]
            install_crd(crd)
            eventually(lambda: not stored(kube))
            await desk.settle()
            assert (running(kube), kube.get("configmaps", "chat-policy")["data"]) == (before, policy)
            ask(kube, scheduling=scheduling)
            await desk.settle()
            assert running(kube) == before
    finally:
        install_crd(crd)
    document = json.loads(policy["policy.json"])
    assert (document["policy"], document["parameters"]["reservedPercent"]) == ("EconoServe", 5)
    assert LEFT["econoServe"][0] not in document["parameters"]
    assert kube.get("llmservices", "chat")["spec"]["scheduling"]["accelGen"]["gamma"] == 500
