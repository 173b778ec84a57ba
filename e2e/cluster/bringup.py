"""Everything that a running cluster needs, in the order that keeps two cores and the network busy.

Compiling Go takes the processors, while packages and wheels mostly wait for the network: the two run side by
side, and the cluster starts as soon as its own programs are there.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import binaries, images, packages, volumes
from .cluster import Cluster


def programs() -> None:
    """Build and fetch what the cluster and the tests on real parts run."""
    packages.ensure()
    binaries.ensure("pause", "kube", "coredns", "helm", "kwok")


def up(cluster: Cluster) -> None:
    """Bring the cluster up with its images loaded; what is there already is left as it is."""
    packages.ensure()
    binaries.ensure("pause")
    with ThreadPoolExecutor(max_workers=2) as pool:
        content = pool.submit(_content)
        built = pool.submit(binaries.ensure, "kube", "coredns", "helm")
        built.result()
        cluster.up()
        archives = content.result()
    images.load(archives, cluster.state)


def _content() -> list[Path]:
    archives = images.build()
    volumes.ensure_models()
    volumes.ensure_engine()
    return archives
