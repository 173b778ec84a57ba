"""A stand-in for an engine that takes turns, whose steps are a sleep; it runs by its path.

Appends `S TIME ALONE` to its log when a step begins and `E TIME` when it ends, with times of the machine's
monotonic clock in nanoseconds. Its priority is the number of steps that it has made, so whoever has made
fewest goes next, and what comes late does not catch up.
"""

import os
import sys
import time
from pathlib import Path

from headrace_engine.contracts import loads
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.turns.connection import join_group

PER_SECOND = 100  # steps that one who was away counts as made


def main(group_file: str, log_file: str, step_seconds: float) -> None:
    """Step until it is ended."""
    group = loads(TurnGroup, Path(group_file).read_bytes())
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    made = 0.0
    member = join_group(group, lambda: made)
    while True:
        while not member.may_step(0.005):
            if member.holds:
                member.release(again=True)
        os.write(log, f"S {time.monotonic_ns()} {int(member.alone)}\n".encode())
        time.sleep(step_seconds)
        made = max(made + 1, time.monotonic() * PER_SECOND)
        asked, end = member.is_asked(), time.monotonic_ns()
        if asked:
            member.release(again=True)
        os.write(log, f"E {end}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
