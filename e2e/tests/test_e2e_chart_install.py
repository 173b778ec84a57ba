"""Helm and a real API server: everything is accepted, and what users made outlives the release."""

import asyncio
import contextlib
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from types import SimpleNamespace

import pytest
import yaml
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from e2e import helm, ports
from e2e.cluster import binaries, places
from e2e.cluster.control_plane import WORKLOADS, ControlPlane
from headrace_engine.contracts import AppliedPolicy, EngineInfo, EngineStatus, dumps
from headrace_gateway.kube import lease
from headrace_gateway.kube.catalog_source import KubernetesSource

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(400)]

WATCHED = {"everywhere": [], "here-only": ["default"]}
POD_ADDRESS = "127.94.0.1"  # of the loopback network, to ourselves
SERVICE = {
    "apiVersion": "headrace.dev/v1alpha1",
    "kind": "LLMService",
    "metadata": {"name": "chat", "namespace": "default"},
    "spec": {"model": {"source": "pvc://models/tiny"}, "engine": {"image": "vllm"}, "replicas": 1},
}


@pytest.fixture(scope="module")
def apiserver():
    """One for this module alone: installing and removing the CRD would disturb the others' objects."""
    with ControlPlane(WORKLOADS) as control_plane:
        yield control_plane


@pytest.fixture
def kubectl(apiserver):
    def run(*arguments, stdin=None):
        command = [binaries.path("kube"), "kubectl", "--kubeconfig", apiserver.kubeconfig]
        command += ["--cache-dir", apiserver.folder / "kubectl-cache", *arguments]
        text = None if stdin is None else json.dumps(stdin)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=180, check=False)
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
    """Wait until the API server serves the definition, and tells so where kubectl looks for kinds."""
    kubectl("wait", "crd/llmservices.headrace.dev", "--for=condition=Established", "--timeout=120s")
    eventually(lambda: "llmservices" in kubectl("api-resources", "--api-group=headrace.dev", "-o", "name"))


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


def test_every_documented_service_is_accepted(kubectl, release):
    release.install()
    established(kubectl)
    kubectl("create", "namespace", "llm")
    pages = [places.REPOSITORY / "README.md", *(places.REPOSITORY / "docs").glob("*.md")]
    text = "\n```\n".join(page.read_text() for page in (*pages, helm.CHART / "templates/NOTES.txt"))
    text = re.sub(r"{{.*?}}", "default", text)
    services = re.findall(
        r"^( *)(apiVersion: headrace\.dev.*?)^(?: *```| *YAML)", text, re.MULTILINE | re.DOTALL
    )
    assert len(services) >= 4
    for indent, service in services:
        manifest = yaml.safe_load(textwrap.dedent(indent + service))
        kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=manifest)


def test_every_pod_is_allowed_where_pod_security_is_restricted(kubectl, release):
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": helm.NAMESPACE, "labels": level},
    }
    kubectl("apply", "-f", "-", stdin=namespace)
    release.install()
    path = "jsonpath={.items[*].metadata.labels.app\\.kubernetes\\.io/component}"

    def created():
        return sorted(kubectl("get", "pods", "-n", helm.NAMESPACE, "-o", path).split())

    eventually(lambda: created() == ["gateway", "gateway", "operator", "operator", "picker", "picker"])
    [test] = (m for m in helm.render() if m["kind"] == "Pod")
    kubectl("apply", "--dry-run=server", "-n", helm.NAMESPACE, "-f", "-", stdin=test)


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
    definition = ("get", "crd", "llmservices.headrace.dev", "--ignore-not-found", "-o", "name")
    eventually(lambda: not kubectl(*definition))


def test_an_upgrade_brings_the_new_definition_and_rolls_what_has_the_new_images(kubectl, release, tmp_path):
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
    assert changed == {"headrace-operator", "headrace-picker", "headrace-gateway"}


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
        eventually(lambda resource=resource: can("create", resource))  # new roles take a moment
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


@pytest.fixture
def as_account(apiserver, kubectl, tmp_path):
    """A kubeconfig that speaks as one of the chart's service accounts."""

    def kubeconfig(component):
        content = yaml.safe_load(apiserver.kubeconfig.read_text())
        token = kubectl("create", "token", f"headrace-{component}", "-n", helm.NAMESPACE).strip()
        for user in content["users"]:
            user["user"] = {"token": token}
        path = tmp_path / f"{component}.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    return kubeconfig


def eventually(check, seconds=120):
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, check
        time.sleep(0.1)


@contextlib.contextmanager
def operator(kubeconfig, watched, log):
    """The operator as a process; gives its metrics as text on every call."""
    (port,) = ports.free(1)
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "HEADRACE_SIDECAR_IMAGE": "sidecar",
        "HEADRACE_METRICS_PORT": str(port),
        "HEADRACE_WATCH_NAMESPACES": ",".join(watched),
        "HEADRACE_SYSTEM_NAMESPACE": helm.NAMESPACE,
    }
    command = [sys.executable, "-m", "headrace_operator"]
    with log.open("w") as output, subprocess.Popen(command, env=environment, stderr=output) as process:
        try:
            yield (
                lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
            )
        finally:
            process.terminate()


@contextlib.contextmanager
def sidecar(address):
    """Answers /status like the sidecar of an engine that has not heard of any policy."""
    status = EngineStatus("0.1.0", ("FCFS", "LARRY"), 1, EngineInfo("Idle"), AppliedPolicy())

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(dumps(status).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer((address, 9400), Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield
        finally:
            server.shutdown()


@pytest.mark.parametrize("name", WATCHED)
def test_the_operator_works_with_its_permissions_alone(kubectl, release, as_account, tmp_path, name):
    watched = WATCHED[name]
    release.install(watchNamespaces=watched)
    established(kubectl)
    kubectl("apply", "-f", "-", stdin=SERVICE | {"metadata": {"name": name, "namespace": "default"}})

    def pods(path):
        return kubectl("get", "pods", "-l", f"headrace.dev/service={name}", "-o", "jsonpath=" + path).split()

    log = tmp_path / "operator.log"
    with sidecar(POD_ADDRESS), operator(as_account("operator"), watched, log) as metrics:
        eventually(lambda: pods("{.items[*].metadata.name}"))
        ready = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "phase": "Running",
            "podIP": POD_ADDRESS,
        }
        [pod] = pods("{.items[*].metadata.name}")
        status = json.dumps({"status": ready})
        kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", status)
        eventually(lambda: pods(r"{.items[*].metadata.annotations.headrace\.dev/policy-refresh}"))
        eventually(lambda: name in kubectl("get", "events", "-o", "name"))
        numbers = metrics()
    assert 'verb="PATCH"' in numbers
    assert 'code="403"' not in numbers
    assert "forbidden" not in log.read_text().lower()


async def test_the_picker_works_with_its_permissions_alone(kubectl, release, as_account):
    release.install()
    published, led = asyncio.Event(), asyncio.Event()
    settings = kubernetes_client.Configuration()
    await kubernetes_config.load_kube_config(str(as_account("picker")), client_configuration=settings)

    def holder():
        path = "jsonpath={.spec.holderIdentity}"
        return kubectl("get", "lease", "headrace-picker", "-n", helm.NAMESPACE, "-o", path)

    async with kubernetes_client.ApiClient(settings) as api:
        source = KubernetesSource(api, ())
        running = asyncio.create_task(source.run(lambda _: published.set()))
        await asyncio.wait_for(published.wait(), 120)
        running.cancel()
        await asyncio.wait([running])
        electing = asyncio.create_task(
            lease.run_election(api, helm.NAMESPACE, "headrace-picker", "picker-0", lambda _: led.set())
        )
        await asyncio.wait_for(led.wait(), 120)
        assert await asyncio.to_thread(holder) == "picker-0"
        electing.cancel()
        await asyncio.wait([electing])
    await asyncio.sleep(0.25)  # TLS connections end in the background
    assert holder() == ""
