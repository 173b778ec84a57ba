"""Fixtures of the operator's tests on a real API server."""

import uuid

import op_release
import pytest
from op_kube import install_crd, new_namespace
from op_process import Operator

from headrace_operator.kube.client import connect


@pytest.fixture(scope="session")
def crd(apiserver):
    install_crd(apiserver)
    op_release.install(apiserver)
    return apiserver


@pytest.fixture(scope="module")
def operator(crd, tmp_path_factory):
    running = Operator(crd, tmp_path_factory.mktemp("operator") / "log").wait()
    yield running
    running.stop()


@pytest.fixture
async def api(crd, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(crd.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with connect() as connected:
        yield connected


@pytest.fixture
async def own_api(crd, monkeypatch):
    """A connection by the operator's own account."""
    monkeypatch.setenv("KUBECONFIG", str(op_release.kubeconfig(crd)))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with connect() as connected:
        yield connected


@pytest.fixture
def kube(crd):
    client = new_namespace(crd, f"t{uuid.uuid4().hex[:8]}")
    yield client
    for service in client.list("llmservices"):
        client.delete("llmservices", service["metadata"]["name"])
    client.close()
