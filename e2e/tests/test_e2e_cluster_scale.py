"""`kubectl scale`: replicas come and go, and nothing else changes."""

import pytest

from e2e.demo.kube import policy_applied
from e2e.demo.services import NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]


def scale(stage, replicas):
    stage.kube("scale", "llmservice/code", "-n", NAMESPACE, f"--replicas={replicas}")


def ready(stage, replicas):
    service = stage.service("code")
    return service["status"].get("readyReplicas") == replicas and policy_applied(service)


def test_scaling_adds_and_removes_only_the_new_replica(stage):
    [first] = stage.pods("code")
    scale(stage, 2)
    stage.until(lambda: len(stage.pods("code")) == 2, 120, "second pod")
    assert stage.complete("code").status_code == 200, "the first replica serves while the second starts"
    stage.until(lambda: ready(stage, 2), 600, "second replica Ready under the policy")

    scale(stage, 1)
    stage.until(lambda: len(stage.pods("code")) == 1 and ready(stage, 1), 180, "one replica again")
    assert stage.complete("code").status_code == 200
    assert [pod["metadata"]["uid"] for pod in stage.pods("code")] == [first["metadata"]["uid"]]
