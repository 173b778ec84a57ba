"""The chart through Helm: what the chart's tests render, install and upgrade."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import binaries, places

CHART = places.REPOSITORY / "charts/headrace"
RELEASE = "headrace"
NAMESPACE = "headrace-system"

Manifest = dict[str, Any]


class HelmError(RuntimeError):
    """Helm refused; the message is what it said."""


def helm(*arguments: str, values: Mapping[str, Any] | None = None, kubeconfig: Path | None = None) -> str:
    """Run Helm with `values` on standard input, and give its standard output."""
    command = [str(binaries.path("helm")), *arguments]
    if values is not None:
        command += ["--values", "-"]
    if kubeconfig is not None:
        command += ["--kubeconfig", str(kubeconfig)]
    done = subprocess.run(
        command, input=yaml.safe_dump(values), capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise HelmError(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def render(values: Mapping[str, Any] | None = None, *flags: str, release: str = RELEASE) -> list[Manifest]:
    """Render every object of the chart under these values, hooks included."""
    text = helm("template", release, str(CHART), "--namespace", NAMESPACE, *flags, values=values or {})
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def of(manifests: Iterable[Manifest], kind: str, name: str | None = None) -> Any:
    """Find the manifests of a kind, or the one of this name."""
    found = [m for m in manifests if m["kind"] == kind and name in (None, m["metadata"]["name"])]
    return found if name is None else found[0]
