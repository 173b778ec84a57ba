"""The chart's own test, run as a user would, on the whole cluster."""

import pytest

from e2e.demo.deploy import RELEASE
from e2e.demo.target import SYSTEM_NAMESPACE


@pytest.mark.cluster
@pytest.mark.timeout(300, func_only=True)
def test_helm_test_lists_the_services(stage):
    said = stage.kube.helm(
        "test", RELEASE, "--namespace", SYSTEM_NAMESPACE, "--logs", "--timeout", "4m", timeout=270
    )
    assert "chat, code" in said
