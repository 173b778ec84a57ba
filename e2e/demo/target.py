"""Where the demo runs: the local cluster, or with CLUSTER=current the one that the user's kubectl speaks to.

On the user's own cluster the nodes pull the images from a registry (`make images REGISTRY=… TAG=…`, and the
same two variables for the demo), and SAMPLES names a folder of LLMServices `chat` and `code` in the namespace
headrace-demo, whose engine image and model the cluster can reach; the samples here need the local volumes.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e import ports
from e2e.cluster import binaries, images
from e2e.cluster.cluster import Cluster
from e2e.demo.kube import Kube, Object
from e2e.demo.services import NAMESPACE

SYSTEM_NAMESPACE = "headrace-system"
GATEWAY = "headrace-gateway"
REOPENED = "http://127.0.0.1:8080"  # where the gateway is while `Target.reopen` runs
SAMPLES = Path(__file__).with_name("samples")


class SettingError(Exception):
    """An environment variable is missing or wrong; the message names it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster that is up, and what differs between the local one and a user's own."""

    kube: Kube
    kubectl: str  # what a user types
    values: Object  # for the chart
    samples: Path
    engine_image: str  # of the samples; empty: the one that they name
    prepare: Callable[[str], None]  # makes the samples' volumes in a namespace
    gateway: Callable[[], contextlib.AbstractContextManager[str]]  # the gateway's URL, at least for the block
    end: tuple[str, ...]  # what a user types to remove it all
    reopen: str = ""  # the command that opens the gateway on REOPENED, where it closes with the block


def connect(settings: Mapping[str, str] = os.environ) -> Target:
    """Connect to the target that CLUSTER names; raises SettingError."""
    match settings.get("CLUSTER", "local"):
        case "local":
            return _local(settings)
        case "current":
            return _current(settings)
        case other:
            raise SettingError(f"CLUSTER={other}: must be local (the default) or current")


def _local(settings: Mapping[str, str]) -> Target:
    cluster = Cluster()
    kube = Kube(
        kubectl=(str(binaries.path("kube")), "kubectl"),
        helm_command=(str(binaries.path("helm")),),
        environment={**settings, "KUBECONFIG": str(cluster.kubeconfig)},
    )
    tags = images.tags()
    small_gateway = {
        "image": {"repository": f"{images.REGISTRY}/envoy", "tag": tags["envoy"]},
        "replicas": 1,
        "concurrency": 1,
        "drainSeconds": 5,
    }
    return Target(
        kube=kube,
        kubectl=".venv/bin/python -m e2e.cluster kubectl",
        values={
            "image": {"registry": images.REGISTRY, "tag": tags["operator"]},
            "gateway": small_gateway,
            "operator": {"replicas": 1},
        },
        samples=SAMPLES,
        engine_image=f"{images.REGISTRY}/vllm-cpu:{tags['vllm-cpu']}",
        prepare=cluster.volumes,
        gateway=lambda: contextlib.nullcontext(cluster.expose(SYSTEM_NAMESPACE, GATEWAY, 80)),
        end=("make down",),
    )


def _current(settings: Mapping[str, str]) -> Target:
    missing = [name for name in ("REGISTRY", "TAG", "SAMPLES") if not settings.get(name)]
    if missing:
        raise SettingError(
            f"CLUSTER=current needs {', '.join(missing)}: the registry and tag that `make images` pushed to, "
            f"and a folder of LLMServices like {SAMPLES}"
        )
    kube = Kube(kubectl=("kubectl",), helm_command=("helm",), environment=settings)
    return Target(
        kube=kube,
        kubectl="kubectl",
        values={"image": {"registry": settings["REGISTRY"], "tag": settings["TAG"]}},
        samples=Path(settings["SAMPLES"]),
        engine_image="",
        prepare=lambda _: None,
        gateway=lambda: _port_forward(kube),
        end=(
            f"kubectl delete namespace {NAMESPACE}",
            f"helm uninstall headrace --namespace {SYSTEM_NAMESPACE}",
        ),
        reopen=f"kubectl port-forward -n {SYSTEM_NAMESPACE} service/{GATEWAY} 8080:80",
    )


@contextlib.contextmanager
def _port_forward(kube: Kube) -> Iterator[str]:
    """Forward a port of this machine to the gateway Service; raises OSError when kubectl gives up."""
    (port,) = ports.free(1)
    command = [*kube.kubectl, "port-forward", "-n", SYSTEM_NAMESPACE, f"service/{GATEWAY}", f"{port}:80"]
    with subprocess.Popen(
        command, env=kube.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise OSError(f"`{' '.join(command)}` ended before it listened")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
