"""The bare control plane that other tests stand on."""

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from e2e.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]


def call(control_plane: ControlPlane, path: str, body: object = None) -> dict:
    request = urllib.request.Request(
        control_plane.url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {control_plane.token}", "Content-Type": "application/json"},
    )
    trust = ssl.create_default_context(cafile=str(control_plane.folder / "pki" / "ca.crt"))
    with urllib.request.urlopen(request, context=trust, timeout=60) as answer:
        return json.load(answer)


def test_controllers_make_pods_of_a_deployment(apiserver):
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    deployment = {
        "metadata": {"name": "made-by-controllers"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    }
    call(apiserver, "/apis/apps/v1/namespaces/default/deployments", deployment)
    deadline = time.monotonic() + 120
    while True:
        pods = call(apiserver, "/api/v1/namespaces/default/pods?labelSelector=app%3Dx")["items"]
        if len(pods) == 2:
            return
        assert time.monotonic() < deadline, f"{len(pods)} of 2 pods"
        time.sleep(0.1)


def test_stop_leaves_no_process_and_no_file():
    with ControlPlane() as control_plane:
        processes = list(control_plane._processes)
        assert [process.poll() for process in processes] == [None, None]
        folder = control_plane.folder
    assert all(process.returncode is not None for process in processes)
    assert not folder.exists()


def test_each_control_plane_has_a_token_of_its_own(apiserver):
    with ControlPlane() as other:
        assert other.token != apiserver.token
        with pytest.raises(urllib.error.HTTPError, match="401"):
            call(SimpleNamespace(url=other.url, folder=other.folder, token=apiserver.token), "/api/v1/pods")


def test_etcd_answers_only_who_has_a_certificate(apiserver):
    options = [option for process in apiserver._processes for option in process.args]
    url = next(option.partition("=")[2] for option in options if option.startswith("--etcd-servers="))
    folder = apiserver.folder / "pki"
    stranger = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"{url}/version", context=stranger, timeout=10)
    known = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    known.load_cert_chain(folder / "etcd.crt", folder / "etcd.key")
    with urllib.request.urlopen(f"{url}/version", context=known, timeout=10) as answer:
        assert json.load(answer)["etcdserver"]
