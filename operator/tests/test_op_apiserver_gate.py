"""A rollout on a real API server and Deployment controller, with pickers and while all are away."""

import time

import pytest
from op_kube import eventually, ok
from op_kubelet import FakeNode
from op_process import Operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

AWAY_SECONDS = 10.0


@pytest.fixture(params=["true", "false"], ids=["gate", "no gate"])
def gate(crd, request, tmp_path):
    running = Operator(crd, tmp_path / "log", HEADRACE_ROUTED_GATE=request.param).wait()
    yield request.param == "true"
    running.stop()


def pods(kube):
    return {pod["metadata"]["name"]: pod for pod in kube.list("pods", labelSelector="headrace.dev/service")}


def routed(kube):
    """Pods that every Envoy knows, by what the picker reported last."""
    known = set(kube.get("llmroutes", "chat")["status"]["pods"])
    return {name for name, pod in pods(kube).items() if pod["metadata"]["uid"] in known}


def ready(pod):
    conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", ())}
    return conditions.get("Ready") == "True"


def test_a_rollout_goes_on_only_to_pods_that_envoys_know(kube, gate):
    """With the gate the service keeps pods that are routed; without, all are replaced by unknown ones."""
    kube.start(replicas=3)
    with FakeNode(kube, picker=True) as node:
        eventually(lambda: kube.condition("chat", "RoutingReady")[1] == "Routed")
        before = set(pods(kube))
        node.picker = False
        time.sleep(1.0)
        assert all(ready(pod) for pod in pods(kube).values())  # nothing is taken out
        ok(kube.patch("llmservices", "chat", {"spec": {"engine": {"image": "example/vllm:2"}}}))
        started = time.monotonic()
        if gate:
            eventually(lambda: kube.condition("chat", "Ready")[1] == "NotRouted")
            time.sleep(AWAY_SECONDS)
            assert len(before & set(pods(kube))) == 2  # maxUnavailable is 1
            assert len(routed(kube)) == 2
        else:
            eventually(lambda: not routed(kube))
            assert time.monotonic() - started < 60
        node.picker = True
        eventually(
            lambda: kube.condition("chat", "RoutingReady")[1] == "Routed" and not before & set(pods(kube))
        )
        eventually(lambda: len(routed(kube)) == 3)
