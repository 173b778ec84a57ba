"""A turn server and stand-ins for engines, as processes on loopback, and what their logs tell."""

import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from e2e import ports
from headrace_engine.contracts import dumps
from headrace_engine.contracts.turn_group import TurnGroup

HOST = "127.0.0.1"
MEMBER, FORWARDER = (Path(__file__).with_name(name) for name in ("member.py", "forwarder.py"))
START_SECONDS = 30.0
LEASE = 2.0


class Step(NamedTuple):
    """A step of a member; times are nanoseconds. `end` is None while it lasts, or if it never ended."""

    member: str
    start: int
    end: int | None
    alone: bool


@dataclass(slots=True)
class Group:
    """The processes of one group. Members are known by name."""

    folder: Path
    step_seconds: float
    port: int = field(default_factory=lambda: ports.free(1)[0])
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start_server(self) -> None:
        """Start the turn server, and wait until it listens."""
        token = self.folder / "token"
        token.write_text(self.token)
        command = [sys.executable, "-m", "headrace_engine.turns", f"--host={HOST}", f"--port={self.port}"]
        command += [f"--token-file={token}", f"--lease={LEASE}", "--starvation=5"]
        self.processes["server"] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(partial(listens, self.port), "the turn server does not listen")

    def start_member(self, name: str, port: int | None = None) -> None:
        """Start a member, which reaches the server at `port` if that is not the server's own."""
        document = self.folder / f"{name}.json"
        document.write_text(dumps(TurnGroup(HOST, port or self.port, self.token)))
        command = [sys.executable, str(MEMBER), str(document), str(self.log(name)), str(self.step_seconds)]
        self.processes[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def start_forwarder(self, name: str) -> int:
        """Start what stands between a member and the server; returns its port."""
        [port] = ports.free(1)
        command = [sys.executable, str(FORWARDER), str(port), str(self.port)]
        self.processes[f"{name}-forwarder"] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(partial(listens, port), "the forwarder does not listen")
        return port

    def takes_turns(self, name: str) -> bool:
        """Tell whether the member's last steps were in turns."""
        steps = self.steps(name, last=3)
        return len(steps) > 3 and not any(step.alone for step in steps[-3:])

    def log(self, name: str) -> Path:
        """Return where the member logs."""
        return self.folder / f"{name}.log"

    def steps(self, name: str, last: int = 0) -> list[Step]:
        """Return the member's steps, or so many of the last."""
        if not self.log(name).exists():
            return []
        with self.log(name).open("rb") as file:
            if last:
                file.seek(max(0, self.log(name).stat().st_size - 64 * (last + 1)))
                file.readline()
            lines = [line.split() for line in file.read().decode().splitlines()]
        made: list[Step] = []
        for line in lines:
            if line[0] == "S" and len(line) == 3:
                made.append(Step(name, int(line[1]), None, line[2] == "1"))
            elif line[0] == "E" and made:
                made[-1] = made[-1]._replace(end=int(line[1]))
        return made

    def signal(self, name: str, number: int) -> int:
        """Send a signal to one of the processes; returns when, in nanoseconds."""
        os.kill(self.processes[name].pid, number)
        at = time.monotonic_ns()
        if number == signal.SIGKILL:
            self.processes.pop(name).wait()
        return at

    def stop(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.kill()
            process.wait()


@contextmanager
def running(
    folder: Path, step_seconds: float, names: Sequence[str], *, forwarded: bool = False
) -> Iterator[Group]:
    """Run a group whose members all take turns; `forwarded`: each by way of a forwarder of its own."""
    group = Group(folder, step_seconds)
    try:
        group.start_server()
        for name in names:
            group.start_member(name, group.start_forwarder(name) if forwarded else None)
        for name in names:
            wait_until(partial(group.takes_turns, name), f"{name} takes no turn")
        yield group
    finally:
        group.stop()


def listens(port: int) -> bool:
    """Tell whether somebody listens there."""
    with socket.socket() as tried:
        return tried.connect_ex((HOST, port)) == 0


def wait_until(holds: Callable[[], bool], otherwise: str, seconds: float = START_SECONDS) -> None:
    """Wait until it holds; raises TimeoutError, which says `otherwise`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.001)


def overlapping(steps: list[Step]) -> int:
    """Count steps that began before one of another member had ended; those that never ended are left out."""
    ended = sorted((step for step in steps if step.end is not None), key=lambda step: step.start)
    found, latest = 0, 0
    for before, step in itertools.pairwise(ended):
        latest = max(latest, before.end or 0)
        found += step.start < latest
    return found
