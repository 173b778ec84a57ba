"""An upgrade restarts no engine, an uninstall keeps the services, a deleted service leaves nothing."""

import pytest

from e2e.demo import deploy, services
from e2e.demo.kube import KubeError
from e2e.demo.services import NAMESPACE
from e2e.demo.steps import Steps
from e2e.demo.target import SYSTEM_NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

OWNED = "deployments,services,configmaps,networkpolicies,poddisruptionbudgets,pods,endpointslices"


def test_an_upgrade_restarts_no_engine(stage):
    before = stage.lives()
    stage.kube.helm(
        *("upgrade", deploy.RELEASE, str(deploy.CHART), "-n", SYSTEM_NAMESPACE, "--reuse-values"),
        *("--set", "operator.resources.limits.memory=600Mi"),
    )
    deploy.wait_deployed(stage.kube, Steps())
    stage.settled()
    assert stage.complete("chat").status_code == 200
    assert services.restarted(before, stage.lives()) == 0


def test_uninstall_keeps_the_services_and_their_engines(stage):
    before = stage.lives()
    stage.kube.helm("uninstall", deploy.RELEASE, "-n", SYSTEM_NAMESPACE, "--wait", "--timeout", "4m")
    try:
        kept = {service["metadata"]["name"] for service in stage.kube.items(NAMESPACE, "llmservices")}
        assert {"chat", "code"} <= kept
        stage.until(
            lambda: not stage.kube.items(SYSTEM_NAMESPACE, "pods"), 180, "the release's pods are gone"
        )
        assert services.restarted(before, stage.lives()) == 0
    finally:
        deploy.headrace(stage.target, Steps())
    stage.settled()
    assert services.restarted(before, stage.lives()) == 0
    stage.until(lambda: stage.complete("chat").status_code == 200, 120, "the gateway routes again")


def test_a_deleted_service_leaves_nothing(stage):
    sample = stage.samples["code"]
    model = {**sample["spec"]["model"], "servedName": "brief"}
    spec = {**sample["spec"], "model": model}
    stage.kube.apply({**sample, "metadata": {"name": "brief", "namespace": NAMESPACE}, "spec": spec})
    stage.until(lambda: stage.pods("brief"), 120, "a pod")
    stage.kube("delete", "llmservice", "brief", "-n", NAMESPACE, "--wait=true")
    stage.until(lambda: not _owned(stage), 300, "everything of it gone")
    with pytest.raises(KubeError, match="NotFound"):
        stage.service("brief")
    stage.until(lambda: stage.complete("brief").status_code == 404, 60, "its route is gone")
    assert stage.complete("code").status_code == 200


def _owned(stage):
    found = stage.kube("get", OWNED, "-n", NAMESPACE, "-l", "headrace.dev/service=brief", "-o", "name")
    return found.split()
