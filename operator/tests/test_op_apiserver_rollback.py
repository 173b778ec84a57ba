"""Rollouts that fail go back to what was ready before, once, on a real API server."""

import pytest
from op_kube import eventually, ok
from op_kubelet import FakeNode

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

GPU = {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}
CRASHED = {"exitCode": 1, "reason": "Error", "message": "Traceback\nValueError: no such quantization"}
CRASHES = {
    "phase": "Running",
    "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}],
    "containerStatuses": [
        {"name": "engine", "ready": False, "started": False, "restartCount": 3}
        | {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": CRASHED}}
        | {"image": "example/vllm:bad", "imageID": "1"}
    ],
}


def engine_image(kube):
    [engine] = kube.get("deployments", "chat")["spec"]["template"]["spec"]["containers"]
    return engine["image"]


def last_ready(kube):
    return kube.get("deployments", "chat")["metadata"]["annotations"]["headrace.dev/last-ready"]


def settled(kube):
    return (
        kube.condition("chat", "Ready")[0] == "True" and kube.condition("chat", "Reconciling")[0] == "False"
    )


def set_image(kube, image, **spec):
    ok(kube.patch("llmservices", "chat", {"spec": {"engine": {"image": image}, **spec}}))


def test_a_crashing_rollout_goes_back_once_and_other_values_are_tried_again(kube, operator):
    kube.start(accelerator=GPU)
    with FakeNode(kube) as node:
        node.problems["example/vllm:bad"] = CRASHES
        eventually(lambda: settled(kube))
        before = kube.get("deployments", "chat")["spec"]["template"]
        set_image(kube, "example/vllm:bad", accelerator={"type": "CPU", "dra": None}, replicas=3)
        eventually(lambda: kube.condition("chat", "Degraded")[1] == "RolledBack")
        eventually(lambda: settled(kube))
        # All that shapes pods is as it was, the devices too; what does not is as asked.
        assert kube.get("deployments", "chat")["spec"]["template"] == before
        assert kube.get("resourceclaimtemplates", "chat-gpu")
        assert kube.get("llmservices", "chat")["status"]["readyReplicas"] == 3
        told = kube.condition("chat", "Degraded")[2]
        assert "ValueError: no such quantization" in told
        assert "correct spec.engine and spec.accelerator" in told
        # It stays so, whatever else changes.
        generation = kube.get("deployments", "chat")["metadata"]["generation"]
        ok(kube.patch("llmservices", "chat", {"spec": {"scheduling": {"policy": "LARRY"}}}))
        eventually(lambda: kube.condition("chat", "PolicyApplied")[2].find("LARRY") > 0)
        ok(kube.patch("llmservices", "chat", {"spec": {"replicas": 2}}))
        eventually(lambda: kube.get("llmservices", "chat")["status"]["readyReplicas"] == 2)
        assert kube.get("deployments", "chat")["spec"]["template"] == before
        assert kube.get("deployments", "chat")["metadata"]["generation"] == generation + 1
        # Other values are tried.
        set_image(kube, "example/vllm:2")
        eventually(lambda: engine_image(kube) == "example/vllm:2" and settled(kube))
        eventually(lambda: kube.condition("chat", "Degraded")[0] == "False")
        eventually(lambda: kube.get("resourceclaimtemplates", "chat-gpu") is None)
        eventually(lambda: "example/vllm:2" in last_ready(kube))
        # So are the values that failed, once others were in between.
        set_image(kube, "example/vllm:bad")
        eventually(lambda: kube.condition("chat", "Degraded")[1] == "RolledBack")
        eventually(lambda: engine_image(kube) == "example/vllm:2" and settled(kube))


def test_a_first_start_that_crashes_has_nothing_to_go_back_to(kube, operator):
    kube.start(engine={"image": "example/vllm:bad"})
    with FakeNode(kube) as node:
        node.problems["example/vllm:bad"] = CRASHES
        eventually(lambda: kube.condition("chat", "Degraded")[1] == "Crashing")
        set_image(kube, "example/vllm:1")
        eventually(lambda: settled(kube))
        assert kube.condition("chat", "Degraded")[0] == "False"
