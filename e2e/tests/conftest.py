"""One running cluster for all cluster tests: Headrace installed, `chat` (2 replicas) and `code` (1) serving.

Engines take half a minute to start on a CPU, so tests share them. A test that changes a service leaves it to
the `stage` fixture to bring it back: before each test the sample files are applied again, and all must serve.
Fixtures wait with deadlines of their own, so the tests' timeouts leave them out (`func_only`): whichever test
comes first also waits for the cluster.
"""

import dataclasses
import json
import re
import subprocess
import sys
import time

import httpx
import pytest

from e2e.cluster.cluster import Cluster
from e2e.demo import deploy, services
from e2e.demo.kube import Kube, KubeError
from e2e.demo.services import NAMESPACE
from e2e.demo.steps import Steps
from e2e.demo.target import SYSTEM_NAMESPACE, Target

_TRY = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")


@dataclasses.dataclass(frozen=True)
class Stage:
    """What a cluster test works with."""

    target: Target
    kube: Kube
    url: str
    samples: dict

    def service(self, name):
        return self.kube.get(NAMESPACE, "llmservice", name)

    def pods(self, name):
        """The service's pods that are not being deleted, oldest first."""
        found = self.kube.items(NAMESPACE, "pods", f"headrace.dev/service={name}")
        alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(alive, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def leaving(self):
        """Whether there are pods that are being deleted."""
        pods = (*self.kube.items(NAMESPACE, "pods"), *self.kube.items(SYSTEM_NAMESPACE, "pods"))
        return any("deletionTimestamp" in pod["metadata"] for pod in pods)

    def lives(self):
        """Restarts by pod uid over all services."""
        return services.pod_lives(self.kube)

    def sidecar(self, pod, path):
        """JSON from a pod's sidecar, through the API server."""
        return services.sidecar(self.kube, pod, path)

    def sidecar_metric(self, pod, sample):
        """A sample of a sidecar's metrics; 0 where there is none."""
        place = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:9400/proxy/metrics"
        found = re.search(rf"^{re.escape(sample)} (\S+)$", self.kube("get", "--raw", place), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def patch(self, name, spec):
        return self.kube.patch(NAMESPACE, "llmservice", name, {"spec": spec})

    def complete(self, model, *, path="/v1/completions", headers=None, **body):
        """One greedy completion, not streamed."""
        body = {"model": model, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, **body}
        return httpx.post(self.url + path, json=body, headers=headers, timeout=120)

    def until(self, holds, timeout, what):
        """Poll until `holds` gives something true; fail with `what` at the deadline."""
        deadline = time.monotonic() + timeout
        while True:
            last = holds()
            if last:
                return last
            if time.monotonic() > deadline:
                pytest.fail(f"{what}: not within {timeout} s")
            time.sleep(0.5)

    def settled(self, timeout=deploy.READY_SECONDS):
        """Wait until both services serve what their spec asks for."""
        services.wait_ready(self.kube, self.samples, timeout, print)


@pytest.fixture(scope="session")
def headrace():
    """The cluster with chart and samples, brought up where it is not; left running for the next session."""
    target, samples = deploy.everything(Steps())
    with target.gateway() as url:
        yield Stage(target, target.kube, url, samples)


@pytest.fixture
def stage(headrace):
    """The cluster with both services as their sample files say, serving, and no pod on its way out."""
    for sample in headrace.samples.values():
        headrace.kube.apply(sample)
    headrace.settled()
    headrace.until(lambda: not headrace.leaving(), 120, "pods of the test before are gone")
    return headrace


@pytest.fixture
def kill():
    """Kill processes of a pod, as the kernel would: no handler runs. Works on the local cluster."""

    def _kill(pod, command):
        script = (
            "import contextlib, os, pathlib, sys\n"
            "uid, wanted = sys.argv[1:]\n"
            "for entry in pathlib.Path('/proc').iterdir():\n"
            "    if not entry.name.isdigit() or int(entry.name) == os.getpid():\n"
            "        continue\n"
            "    with contextlib.suppress(OSError):  # it has ended, perhaps with its parent\n"
            "        line = (entry / 'cmdline').read_bytes().replace(b'\\0', b' ').decode(errors='replace')\n"
            "        group = (entry / 'cgroup').read_text().replace('_', '-')\n"
            "        if wanted in line and uid in group:\n"
            "            os.kill(int(entry.name), 9)\n"
            "            print(entry.name, line[:80])\n"
        )
        command_line = [*Cluster().enter(), sys.executable, "-c", script, pod["metadata"]["uid"], command]
        killed = subprocess.run(command_line, capture_output=True, text=True, check=True, timeout=120).stdout
        assert killed, f"no process of {pod['metadata']['name']} has {command!r} in its command line"
        return killed

    return _kill


@pytest.fixture
def refused(headrace):
    """Try to apply an object; what the API server said against it."""

    def _refused(manifest):
        try:
            headrace.kube(*_TRY, stdin=json.dumps(manifest))
        except KubeError as error:
            return str(error)
        return ""

    return _refused
