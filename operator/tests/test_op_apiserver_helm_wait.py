"""`helm upgrade --wait` tells by a service's status whether a change succeeded: by kstatus, as Flux does."""

import time

import pytest
import yaml
from op_kube import eventually, llmservice
from op_kubelet import FakeNode
from test_op_apiserver_rollback import CRASHES

from e2e.helm import HelmError, helm

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator"), pytest.mark.timeout(300)]

PATIENCE = 60  # seconds that Helm waits


@pytest.fixture
def release(crd, kube, tmp_path):
    """Bring a service with a spec to the cluster as a chart does; raises HelmError unless that succeeds."""
    (tmp_path / "templates").mkdir()
    chart = {"apiVersion": "v2", "name": "models", "version": "0.1.0"}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(chart))

    def upgrade(**spec):
        model = {"source": "pvc://models/tiny", "servedName": f"chat-{kube.namespace}"}
        manifest = llmservice(**{"model": model, **spec})
        (tmp_path / "templates/chat.yaml").write_text(yaml.safe_dump(manifest))
        wait = ("--install", "--wait", f"--timeout={PATIENCE}s", "--namespace", kube.namespace)
        helm("upgrade", "models", str(tmp_path), *wait, kubeconfig=crd.kubeconfig)

    return upgrade


def test_it_succeeds_once_all_pods_are_as_the_spec_asks(kube, release):
    with FakeNode(kube) as node:
        release()
        assert kube.get("llmservices", "chat")["status"]["readyReplicas"] == 2
        release(engine={"image": "example/vllm:2"}, disruption={"maxSurge": 1, "maxUnavailable": 0})
        images = {each["spec"]["containers"][0]["image"] for each in kube.list("pods")}
        assert images == {"example/vllm:2"}
        node.problems["example/vllm:bad"] = CRASHES
        with pytest.raises(HelmError, match="Failed"):
            release(engine={"image": "example/vllm:bad"})
        assert kube.condition("chat", "Stalled")[1] == "RolledBack"


def test_it_fails_at_once_of_a_spec_that_is_refused_though_what_runs_serves(kube, release):
    with FakeNode(kube):
        release()
        taken = {"source": "pvc://models/tiny", "servedName": f"other-{kube.namespace}"}
        kube.create("llmservices", llmservice("other", model=taken))
        eventually(lambda: kube.condition("other", "Ready")[0] == "True")
        before = time.monotonic()
        with pytest.raises(HelmError, match="servedName"):
            release(model=taken)
        assert time.monotonic() - before < PATIENCE / 2
        assert kube.condition("chat", "Ready")[0] == "True"
        release()
