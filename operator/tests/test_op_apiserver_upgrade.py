"""Releases of the operator that render pods otherwise, over services that run, on a real API server."""

import copy
import sys

import pytest
from op_desk import Desk
from op_kube import llmservice, ok
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
