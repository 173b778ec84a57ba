"""Loopback ports for servers that are told theirs, and that nothing else on this machine takes meanwhile.

A port that was bound, read and closed again can be taken before its server has started, by an outgoing
connection or by another run of the tests. Ports from here are below those that the kernel gives to
connections, and locked until this process ends against all others that ask here.
"""

import fcntl
import functools
import os
import random
import socket
from itertools import chain
from pathlib import Path

from e2e.cluster.places import cache

_FIRST = 10_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_taken: set[int] = set()


def free(count: int) -> list[int]:
    """Give this process so many ports on which nobody listens; raises OSError if fewer are left."""
    candidates = range(_FIRST, int(_EPHEMERAL.read_text().split()[0]))
    found: list[int] = []
    start = random.choice(candidates)
    for port in chain(range(start, candidates.stop), range(candidates.start, start)):
        if len(found) == count:
            break
        if _take(port):
            found.append(port)
    if len(found) < count:
        raise OSError(f"not {count} free ports in {candidates}")
    return found


def _take(port: int) -> bool:
    """Lock a port; False if another process has it, or anybody listens on it."""
    if port in _taken:
        return False
    try:
        # A lock of the byte at this place: it is this process's, whatever it forks, and ends with it.
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _taken.add(port)
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


@functools.cache
def _locks() -> int:
    cache().mkdir(parents=True, exist_ok=True)
    return os.open(cache() / ".ports.lock", os.O_RDWR | os.O_CREAT, 0o600)
