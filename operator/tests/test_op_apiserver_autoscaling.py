"""An autoscaler's number of replicas survives `kubectl apply` of the manifest, as a Deployment's does."""

import json
import subprocess

import pytest
from op_kube import llmservice, ok

from e2e.cluster import binaries

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

CLIENT_SIDE, SERVER_SIDE = ("apply",), ("apply", "--server-side")
BOTH_WAYS = pytest.mark.parametrize("apply", [CLIENT_SIDE, SERVER_SIDE], ids=["client-side", "server-side"])


@pytest.fixture
def kubectl(crd, kube):
    """Run kubectl in the test's namespace, with a manifest on its standard input."""
    program = [binaries.path("kube"), "kubectl"]
    command = [*program, "--kubeconfig", crd.kubeconfig, "--namespace", kube.namespace]

    def run(*arguments, manifest):
        text = json.dumps(manifest)
        done = subprocess.run(
            [*command, *arguments, "-f", "-"], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    return run


def manifest(**spec):
    """A manifest without the number of replicas, unless it is given."""
    body = llmservice(**spec)
    if "replicas" not in spec:
        del body["spec"]["replicas"]
    return body


def scale(kube, replicas):
    """Set the number as an autoscaler does."""
    body = {"spec": {"replicas": replicas}}
    ok(kube.patch("llmservices", "chat", body, sub="scale", manager="autoscaler"))


def replicas(kube):
    return kube.get("llmservices", "chat")["spec"]["replicas"]


@BOTH_WAYS
def test_an_autoscaler_can_read_a_service_whose_manifest_has_no_replicas(kube, kubectl, apply):
    kubectl(*apply, manifest=manifest())
    assert ok(kube.http.get(kube.path("llmservices", "chat", "scale")))["spec"] == {"replicas": 1}


@BOTH_WAYS
@pytest.mark.parametrize("wanted", [5, 0])
def test_an_autoscalers_number_survives_each_apply_of_a_manifest_without_replicas(
    kube, kubectl, apply, wanted
):
    kubectl(*apply, manifest=manifest())
    scale(kube, wanted)
    kubectl(*apply, manifest=manifest())
    assert replicas(kube) == wanted
    kubectl(*apply, manifest=manifest(slo={"ttft": "1s"}))
    service = kube.get("llmservices", "chat")["spec"]
    assert (service["replicas"], service["slo"]["ttft"]) == (wanted, "1s")


@BOTH_WAYS
def test_a_manifest_that_sets_replicas_takes_them_back(kube, kubectl, apply):
    kubectl(*apply, manifest=manifest(replicas=2))
    scale(kube, 5)
    forced = [*apply, *(["--force-conflicts"] if apply is SERVER_SIDE else [])]
    kubectl(*forced, manifest=manifest(replicas=2))
    assert replicas(kube) == 2


def test_server_side_apply_gives_up_the_field_once_the_autoscaler_has_written(kube, kubectl):
    kubectl(*SERVER_SIDE, manifest=manifest(replicas=2))
    scale(kube, 5)
    kubectl(*SERVER_SIDE, manifest=manifest())
    assert replicas(kube) == 5


def test_client_side_apply_gives_up_the_field_once_its_last_manifest_lacks_it(kube, kubectl):
    kubectl(*CLIENT_SIDE, manifest=manifest(replicas=2))
    scale(kube, 5)
    kubectl("apply", "set-last-applied", manifest=manifest())
    kubectl(*CLIENT_SIDE, manifest=manifest())
    assert replicas(kube) == 5
