"""Helm and a real API server: everything is accepted, and what users made outlives the release."""

import contextlib
import functools
import json
import shutil
import subprocess
import time
from types import SimpleNamespace

import pytest

from e2e import helm
from e2e.cluster import binaries

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

SERVICE = {
    "apiVersion": "headrace.dev/v1alpha1",
    "kind": "LLMService",
    "metadata": {"name": "chat", "namespace": "default"},
    "spec": {"model": {"source": "pvc://models/tiny"}, "engine": {"image": "vllm"}, "replicas": 1},
}


@pytest.fixture
def kubectl(apiserver):
    def run(*arguments, stdin=None):
        command = [binaries.path("kube"), "kubectl", "--kubeconfig", apiserver.kubeconfig]
        command += ["--cache-dir", apiserver.folder / "kubectl-cache", *arguments]
        text = None if stdin is None else json.dumps(stdin)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def release(apiserver, kubectl):
    """Helm's `install`, `upgrade` and `uninstall` against the API server; leaves nothing behind."""

    def run(verb, *flags, chart=helm.CHART, **values):
        where = ("--namespace", helm.NAMESPACE)
        helm.helm(
            verb, helm.RELEASE, str(chart), *where, *flags, values=values, kubeconfig=apiserver.kubeconfig
        )

    def uninstall():
        helm.helm("uninstall", helm.RELEASE, "--namespace", helm.NAMESPACE, kubeconfig=apiserver.kubeconfig)

    install = functools.partial(run, "install", "--create-namespace")
    yield SimpleNamespace(install=install, upgrade=functools.partial(run, "upgrade"), uninstall=uninstall)
    with contextlib.suppress(helm.HelmError):
        uninstall()
    kubectl("delete", "crd", "llmservices.headrace.dev", "--ignore-not-found", "--wait=true")


def uid(kubectl, kind, name, namespace="default"):
    return kubectl("get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.uid}")


def established(kubectl):
    kubectl("wait", "crd/llmservices.headrace.dev", "--for=condition=Established", "--timeout=20s")


@pytest.mark.parametrize("watched", [[], ["default", "kube-public"]])
def test_the_api_server_accepts_every_object_strictly(kubectl, release, watched):
    release.install(watchNamespaces=watched)  # so that the namespace and the definition exist
    for manifest in helm.render({"watchNamespaces": watched}):
        manifest["metadata"].setdefault("namespace", helm.NAMESPACE)
        kubectl(
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "--force-conflicts",
            "-f",
            "-",
            stdin=manifest,
        )


def test_uninstall_keeps_services_and_the_next_install_takes_them_over(kubectl, release):
    release.install()
    established(kubectl)
    kubectl("apply", "-f", "-", stdin=SERVICE)
    before = uid(kubectl, "llmservice", "chat")
    release.uninstall()
    assert uid(kubectl, "llmservice", "chat") == before
    assert not kubectl("get", "deployments", "-n", helm.NAMESPACE, "-o", "name").strip()
    release.install()
    assert uid(kubectl, "llmservice", "chat") == before


def test_uninstall_removes_the_definition_when_told_not_to_keep_it(kubectl, release):
    release.install(crds={"keep": False})
    established(kubectl)
    release.uninstall()
    deadline = time.monotonic() + 20
    while kubectl("get", "crd", "llmservices.headrace.dev", "--ignore-not-found", "-o", "name"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_upgrade_brings_the_new_definition_and_leaves_envoy_alone(kubectl, release, tmp_path):
    old = shutil.copytree(helm.CHART, tmp_path / "headrace")
    definition = old / "templates/crds/llmservices.headrace.dev.yaml"
    definition.write_text(definition.read_text().replace("    shortNames:\n    - llms\n", ""))
    release.install(chart=old)

    def short_names():
        return kubectl("get", "crd", "llmservices.headrace.dev", "-o", "jsonpath={.spec.names.shortNames}")

    def generations():
        path = "jsonpath={range .items[*]}{.metadata.name}={.metadata.generation} {end}"
        return set(kubectl("get", "deployments", "-n", helm.NAMESPACE, "-o", path).split())

    before = generations()
    assert not short_names()
    release.upgrade(image={"tag": "next"})
    assert "llms" in short_names()
    changed = {entry.partition("=")[0] for entry in generations() - before}
    assert changed == {"headrace-operator", "headrace-picker"}


def test_the_operator_may_do_its_work_and_nothing_beside_it(kubectl, release):
    release.install()
    account = f"--as=system:serviceaccount:{helm.NAMESPACE}:headrace-operator"

    def can(verb, resource, *flags):
        command = ["auth", "can-i", verb, resource, account, "-n", "default", *flags]
        try:
            return kubectl(*command).strip() == "yes"
        except AssertionError:
            return False

    for resource in ("deployments.apps", "services", "configmaps", "networkpolicies.networking.k8s.io"):
        assert can("create", resource), resource
    assert can("patch", "llmservices.headrace.dev", "--subresource=status")
    for verb, resource in (
        ("get", "secrets"),
        ("list", "secrets"),
        ("create", "pods"),
        ("delete", "pods"),
        ("patch", "llmservices.headrace.dev"),
        ("create", "rolebindings.rbac.authorization.k8s.io"),
        ("get", "nodes"),
    ):
        assert not can(verb, resource), f"{verb} {resource}"
