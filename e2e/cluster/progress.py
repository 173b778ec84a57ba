"""Run commands, with progress: lines with the time since the start, a heartbeat while a step is silent."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

_start = time.monotonic()
_BEAT_SECONDS = 8.0


def say(text: str) -> None:
    """Print one line with the seconds since this command started."""
    print(f"[{time.monotonic() - _start:5.0f}s] {text}", flush=True)


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Announce a step, say every few seconds that it goes on, and say how long it took."""
    began = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_BEAT_SECONDS):
            say(f"  {text}: {time.monotonic() - began:.0f} s so far")

    say(text)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if time.monotonic() - began >= 1:
        say(f"  {text}: done in {time.monotonic() - began:.1f} s")


def run(command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a command and give its output; raise RuntimeError with the end of it when it fails."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{tail}")
    return done.stdout


def detach(
    command: Sequence[str], output: IO[bytes], *, cwd: Path | None = None, pass_fds: Sequence[int] = ()
) -> None:
    """Start a command that outlives this process, in a session of its own and as nobody's child."""
    subprocess.run(
        ["setsid", "--fork", *command],
        cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=pass_fds, check=True,
    )  # fmt: skip
