"""What the demo says while it works: stages with their times, and never ten silent seconds.

Everything printed goes through `say`, from any thread. While a stage is open a watcher thread repeats the
stage's name and age whenever nothing was said for some seconds, so that a slow step never looks like a hang.
"""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

QUIET = 8.0  # seconds of silence before the watcher speaks


class StageError(Exception):
    """A stage failed; the message says which, and what was seen."""


class CommandError(Exception):
    """A command ended with an error; the message holds its last lines."""


@dataclass(slots=True)
class Steps:
    """Prints stages and remembers how long each took, in seconds."""

    seconds: dict[str, float] = field(default_factory=dict)
    _said: float = field(default_factory=time.monotonic)
    _open: str = ""
    _since: float = 0.0

    def say(self, text: str = "") -> None:
        """Print a line at once, without buffering."""
        self._said = time.monotonic()
        print(text, flush=True)

    def alive(self) -> None:
        """Note that something else was shown."""
        self._said = time.monotonic()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Print the stage's start and its time; what is raised inside leaves with the stage's name in it."""
        self.say(f"▸ {name}")
        self._open, self._since = name, time.monotonic()
        closed = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(closed,), daemon=True)
        watcher.start()
        try:
            yield
        except Exception as error:
            raise StageError(f"step “{name}” failed: {str(error) or type(error).__name__}") from error
        finally:
            closed.set()
            watcher.join()
            self.seconds[name] = time.monotonic() - self._since
        self.say(f"  done in {self.seconds[name]:.1f} s")

    def command(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run a command and print its lines as they come; raises CommandError."""
        tail: list[str] = []
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout or ():
                tail = [*tail[-14:], line.rstrip()]
                self.say(f"  {line.rstrip()}")
        if process.returncode:
            raise CommandError(f"`{' '.join(command)}` ended with {process.returncode}\n" + "\n".join(tail))

    def _watch(self, closed: threading.Event) -> None:
        while not closed.wait(1.0):
            if time.monotonic() - self._said > QUIET and not sys.stdout.closed:
                self.say(f"  … {self._open}, {time.monotonic() - self._since:.0f} s")
