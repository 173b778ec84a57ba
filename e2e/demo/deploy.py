"""A cluster with Headrace and the sample services on it: the start of the demo, the benchmarks and the tests.

Every step leaves alone what is already as it should be.
"""

import os
import sys
import time
from collections.abc import Mapping

import yaml

from e2e.cluster.places import REPOSITORY
from e2e.demo import services
from e2e.demo.kube import Kube, Object
from e2e.demo.services import NAMESPACE
from e2e.demo.steps import Steps
from e2e.demo.target import SYSTEM_NAMESPACE, Target, connect

CHART = REPOSITORY / "charts/headrace"
RELEASE = "headrace"
INSTALL_SECONDS = 300.0
READY_SECONDS = 900.0  # a CPU engine starts in half a minute alone; three at once on two slow cores in many


def everything(steps: Steps) -> tuple[Target, dict[str, Object]]:
    """Bring up a cluster with Headrace and the sample services by name, all serving; raises StageError."""
    target = cluster(steps)
    headrace(target, steps)
    manifests = services.load(target.samples, target.engine_image)
    sample_services(target, manifests, steps)
    return target, manifests


def cluster(steps: Steps) -> Target:
    """Bring the local cluster up, or take the user's (CLUSTER=current); raises StageError, SettingError."""
    if os.environ.get("CLUSTER", "local") == "local":
        with steps.stage("cluster"):
            steps.command([sys.executable, "-m", "e2e.cluster", "up"], os.environ)
    return connect()


def headrace(target: Target, steps: Steps) -> None:
    """Install or upgrade the chart, and wait until operator, picker and Envoy are ready."""
    with steps.stage("chart"):
        install(target.kube, target.values, steps)


def install(kube: Kube, values: Object, steps: Steps) -> None:
    """Install or upgrade the chart with these values, and wait as `headrace` does, in the caller's stage."""
    kube.helm(
        *("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM_NAMESPACE),
        *("--create-namespace", "--values", "-"),
        stdin=yaml.safe_dump(values),
    )
    wait_deployed(kube, steps)


def wait_deployed(kube: Kube, steps: Steps) -> None:
    """Wait until all Deployments of the release are rolled out; raises NotReadyError."""
    deadline = time.monotonic() + INSTALL_SECONDS
    told = ""
    while True:
        deployments = kube.items(SYSTEM_NAMESPACE, "deployments")
        story = ", ".join(
            f"{d['metadata']['name']} {_available(d)}/{d['spec']['replicas']}" for d in deployments
        )
        if story != told:
            steps.say(f"  {story}")
            told = story
        if all(_rolled_out(deployment) for deployment in deployments):
            return
        if time.monotonic() > deadline:
            raise services.NotReadyError(f"not ready in {INSTALL_SECONDS:.0f} s: {story}")
        time.sleep(1)


def sample_services(target: Target, manifests: Mapping[str, Object], steps: Steps) -> None:
    """Apply the services, with the policy that their files name, and wait until they serve."""
    with steps.stage("sample services"):
        target.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        target.prepare(NAMESPACE)
        for manifest in manifests.values():
            target.kube.apply(manifest)
    with steps.stage("engines start"):
        services.wait_ready(target.kube, manifests, READY_SECONDS, steps.say)


def _available(deployment: Object) -> int:
    return int(deployment["status"].get("availableReplicas", 0))


def _rolled_out(deployment: Object) -> bool:
    """Tell whether every replica is of the present template and available, with no older one left."""
    status, wanted = deployment["status"], deployment["spec"]["replicas"]
    seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    return seen and counts == [wanted] * 3
