"""Build the cluster's programs from pinned Go modules into the cache; `packages` has the others.

A built file carries its version in its name (for our own module: the hash of its sources too), so the
right one is found again and an old one is never taken for it. `NAME` beside it is a link to the newest,
for people.
"""

import fcntl
import json
import os
import shutil
from pathlib import Path

from .places import REPOSITORY, cache
from .progress import run, step
from .sources import digest

KUBERNETES = "v1.34.3"  # the last minor release that accepts containerd 1.6 and cgroup v1
_MODULE = REPOSITORY / "e2e" / "cluster" / "kube"
_INSTALLED = {
    "helm": ("helm.sh/helm/v4/cmd/helm", "v4.3.1"),
    "coredns": ("github.com/coredns/coredns", "v1.14.7"),
    "kwok": ("sigs.k8s.io/kwok/cmd/kwok", "v0.8.0"),
}


def path(name: str) -> Path:
    """Give the path of a built program, there or not; raises KeyError for a name that we do not build."""
    ours = name in {"kube", "pause"}
    version = f"{KUBERNETES}-{digest([_MODULE])}" if ours else _INSTALLED[name][1]
    return cache() / "bin" / f"{name}-{version}"


def module_folder(name: str) -> Path:
    """Give the folder of a program's Go module, fetched when it is not in Go's own cache."""
    module, version = _INSTALLED[name]
    download = run(["go", "mod", "download", "-json", f"{module.split('/cmd/')[0]}@{version}"])
    return Path(json.loads(download)["Dir"])


def ensure(*names: str) -> None:
    """Build what is missing of the named programs; a second builder waits for the first."""
    folder = cache() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            target = path(name)
            if not target.exists():
                with step(f"building {target.name} (minutes, once)"):
                    _build(name, target)
            link = folder / name
            if not link.is_symlink() or link.readlink() != Path(target.name):
                link.unlink(missing_ok=True)
                link.symlink_to(target.name)


def _build(name: str, target: Path) -> None:
    if shutil.which("go") is None:
        raise FileNotFoundError("building the local cluster's programs needs Go 1.24 or newer on the PATH")
    environment = {**os.environ, "CGO_ENABLED": "0"}
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    if name in _INSTALLED:
        module, version = _INSTALLED[name]
        folder = target.parent / f".{name}.{os.getpid()}"
        environment["GOBIN"] = str(folder)
        run(["go", "install", "-trimpath", "-ldflags", "-s -w", f"{module}@{version}"], env=environment)
        (folder / name).rename(fresh)
        folder.rmdir()
    else:
        package = "." if name == "kube" else f"./{name}"
        flags = ["-trimpath", "-ldflags", _link_flags()]
        run(["go", "build", *flags, "-o", str(fresh), package], cwd=_MODULE, env=environment)
    fresh.rename(target)


def _link_flags() -> str:
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    values = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(
        f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items()
    )
