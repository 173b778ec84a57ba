"""What a local cluster could leave on the machine outside its namespaces."""

import contextlib
import hashlib
import subprocess
from pathlib import Path

from e2e.cluster import packages, remains

_FOLDERS = (
    *("/etc", "/opt", "/run", "/run/netns", "/usr/libexec", "/usr/sbin", "/usr/bin"),
    *("/var/lib", "/var/lib/cni", "/var/log"),
)
_FILES = ("/etc/group", "/etc/hosts", "/etc/passwd", "/etc/resolv.conf", "/var/lib/dpkg/status")
# The kernel changes these by itself.
_ALIVE = {"ns_last_pid", "perf_cpu_time_max_percent", "perf_event_max_sample_rate"}


def footprint(cluster):
    """Give it by kind; two of them are equal where nothing was left."""
    return {
        "mounts": set(Path("/proc/self/mountinfo").read_text().splitlines()),
        "interfaces": {line for line in _output("ip", "-oneline", "link") if line[0].isdigit()},
        "routes": _output("ip", "route"),
        "namespaces": _output("ip", "netns"),
        "rules": {line for line in _output("iptables-save") if not line.startswith(("#", ":"))},
        "sysctls": _sysctls(),
        "cgroups": {str(root) for root in remains.cgroup_roots(cluster.cgroup) if root.exists()},
        "units": set(map(str, Path("/etc/systemd/system").rglob("*"))),
        "files": {path for folder in _FOLDERS for path in _names(Path(folder)) - {str(cluster.state.parent)}},
        "contents": {file: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in _FILES},
        "state": _names(cluster.state),
    }


def _output(program, *arguments):
    command = [packages.path(program), *arguments]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())


def _names(folder):
    return {str(path) for path in folder.iterdir()} if folder.exists() else set()


def _sysctls():
    """Read every setting that can be written."""
    found = {}
    for file in Path("/proc/sys").rglob("*"):
        with contextlib.suppress(OSError):
            if file.is_file() and file.stat().st_mode & 0o200 and file.name not in _ALIVE:
                found[str(file)] = file.read_bytes()
    return found
