"""Programs of Debian packages, unpacked into the cache: nothing is installed on the machine.

An installed package would bring more than its program: units that start etcd or Prometheus at the next boot,
users, files in /etc. Here apt only downloads, with lists and archives of its own, the packages and those of
their dependencies that the machine lacks. Each program has a starter in `programs()`, by which it finds the
libraries that were unpacked beside it.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from .places import cache
from .progress import run, step
from .sources import digest

_PACKAGES = (
    "buildah",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "debootstrap",
    "etcd-server",
    "iproute2",
    "iptables",
    "prometheus",  # promtool too; answers the queries of dashboards and alerts
    "runc",
)
_RELEASE = Path("/etc/debian_version")
_PROGRAM_FOLDERS = ("bin", "sbin", "usr/bin", "usr/sbin")
_STARTER = """\
#!/bin/sh
export LD_LIBRARY_PATH={libraries} XTABLES_LIBDIR={libraries}/xtables
exec {program} "$@"
"""


def tree() -> Path:
    """Give the folder that the packages are unpacked into, there or not."""
    release = _RELEASE.read_text().strip() if _RELEASE.exists() else ""
    return cache() / "packages" / digest([], release, _STARTER, *_PACKAGES)


def programs() -> Path:
    """Give the folder of the programs, for a PATH."""
    return tree() / "programs"


def path(name: str) -> Path:
    """Give the path of one program."""
    return programs() / name


def environment() -> dict[str, str]:
    """Give this process's environment with the programs first on its PATH."""
    return {**os.environ, "PATH": f"{programs()}:{os.environ['PATH']}"}


def run_apart(*commands: str) -> str:
    """Run shell commands in one mount namespace where the packages are installed, and give their output.

    What the commands change in the machine's /etc, /run and /var/lib is thrown away. Programs that start
    themselves once more and without an environment, as buildah does, find their libraries here.
    """
    with tempfile.TemporaryDirectory(prefix=".apart-", dir=tree().parent) as scratch:
        mounts = [f"mount -n -t overlay overlay -o lowerdir=/usr:{tree()}/usr /usr"]
        for folder in ("etc", "run", "var/lib"):
            changed, work = Path(scratch, "changed", folder), Path(scratch, "work", folder)
            for each in (changed, work, tree() / folder):
                each.mkdir(parents=True, exist_ok=True)
            layers = f"lowerdir=/{folder}:{tree()}/{folder},upperdir={changed},workdir={work}"
            mounts.append(f"mount -n -t overlay overlay -o {layers} /{folder}")
        return run(["unshare", "--mount", "sh", "-ec", " && ".join([*mounts, *commands])])


def ensure() -> None:
    """Download and unpack the packages, once; a second caller waits for the first.

    Raises FileNotFoundError where there is no apt, RuntimeError with apt's words where it can't.
    """
    target = tree()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        for name in ("apt-get", "dpkg"):
            if shutil.which(name) is None:
                raise FileNotFoundError(f"the local cluster needs Debian's {name}: run it on Debian 12")
        with (
            step(f"fetching {' '.join(_PACKAGES)}"),
            tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch,
        ):
            fresh = Path(scratch) / "tree"
            fresh.mkdir()
            for package in _download(Path(scratch)):
                run(["dpkg", "--extract", str(package), str(fresh)])
            _write_starters(fresh, target)
            fresh.chmod(0o755)
            fresh.rename(target)


def _download(scratch: Path) -> list[Path]:
    archives, lists = scratch / "archives", scratch / "lists"
    for folder in (archives, lists):
        (folder / "partial").mkdir(parents=True)
    options = {
        "Dir::Cache": scratch,
        "Dir::Cache::Archives": archives,
        "Dir::State::Lists": lists,
        "APT::Sandbox::User": "root",  # apt's own user may not enter the cache of another
        "Debug::NoLocking": "1",  # nothing of the machine's is written: no need to wait for another apt
    }
    apt = ["apt-get", "-q", "-y", *(f"-o{key}={value}" for key, value in options.items())]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run([*apt, "update"], env=environment)
    # Reinstall: also what the machine has already, so that all machines run the same.
    install = ["install", "--download-only", "--reinstall", "--no-install-recommends"]
    run([*apt, *install, *_PACKAGES], env=environment)
    return sorted(archives.glob("*.deb"))


def _write_starters(fresh: Path, target: Path) -> None:
    """Write a starter for each program in `fresh`, which will be called `target`."""
    (libraries,) = (fresh / "usr/lib").glob("*-linux-gnu*")
    libraries = target / libraries.relative_to(fresh)
    (fresh / "programs").mkdir()
    for folder in _PROGRAM_FOLDERS:
        for program in (fresh / folder).glob("*"):
            text = _STARTER.format(libraries=libraries, program=target / folder / program.name)
            # What an installation would link: iptables to iptables-nft, iptables-save to iptables-nft-save.
            for name in {program.name, program.name.replace("tables-nft", "tables")}:
                starter = fresh / "programs" / name
                starter.write_text(text)
                starter.chmod(0o755)
