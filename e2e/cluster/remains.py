"""Find what is left of a cluster and remove it, whatever state it was in.

Nothing is looked up in pid files, which go stale: the first process of a cluster is known by its command
line, which names the cluster's state folder. Killing it makes the kernel end everything in its
namespaces. What outlives a process are control groups and files; both carry the cluster's name.
"""

import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_GONE_SECONDS = 120.0


def node_command(state: Path) -> tuple[str, ...]:
    """Give the arguments by which the first process of a cluster is known."""
    return ("-m", "e2e.cluster.node", str(state))


def node_pids(state: Path) -> list[int]:
    """Find the processes (the namespaces' first one, and the `unshare` that waits for it)."""
    return pids_of(node_command(state))


def pids_of(arguments: Sequence[str]) -> list[int]:
    """Find the processes whose command lines have these arguments, one after the other."""
    wanted = "\0".join(arguments).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it ended while we looked
            if b"\0" + wanted + b"\0" in b"\0" + line:
                found.append(int(entry.name))
    return sorted(found)


def first_process(state: Path) -> int | None:
    """Find the process that is number 1 in the cluster's own pid namespace; give its pid on the machine."""
    for pid in node_pids(state):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue  # it ended while we looked
        numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
        if len(numbers) > 1 and numbers[-1] == "1":
            return pid
    return None


def end(state: Path) -> None:
    """Kill the cluster's first process and wait until the kernel has ended all the others."""
    deadline = time.monotonic() + _GONE_SECONDS
    while pids := node_pids(state):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {pids} of {state} did not end")
        time.sleep(0.05)


def cgroup_roots(cgroup: str) -> list[Path]:
    """Give this cluster's control group in every mounted hierarchy, there or not."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS / cgroup]
    return [hierarchy / cgroup for hierarchy in _CGROUPS.iterdir() if (hierarchy / "cgroup.procs").exists()]


def limit_memory(root: Path, limit: int) -> None:
    """Give a control group at most `limit` bytes, if its hierarchy counts memory.

    Beyond them the kernel ends a process of the group, and none of the machine's.
    """
    for name in ("memory.max", "memory.limit_in_bytes"):  # cgroup v2, v1
        if (root / name).exists():
            (root / name).write_text(str(limit))


def remove_cgroups(cgroup: str) -> None:
    """Remove the control groups, deepest first, as their last processes leave them."""
    deadline = time.monotonic() + _GONE_SECONDS
    for root in cgroup_roots(cgroup):
        while root.exists():
            for folder, _, _ in os.walk(root, topdown=False):
                try:
                    Path(folder).rmdir()
                except OSError:  # still busy, or its child is
                    continue
            if root.exists():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{root} is still in use")
                time.sleep(0.05)


def remove(state: Path, cgroup: str) -> None:
    """End the processes, then remove control groups and files."""
    end(state)
    remove_cgroups(cgroup)
    if state.exists():
        shutil.rmtree(state)
    end(state)  # a process that started while we looked, before it could see that its folder is gone
    if state.parent.exists() and not any(state.parent.iterdir()):
        state.parent.rmdir()
