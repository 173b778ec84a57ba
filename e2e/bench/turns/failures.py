"""Members and the server of a group that are killed, that hang, or that are cut off: how long others wait.

Whoever hangs is stopped by a signal. Whoever is cut off reaches the server by way of a process that passes
everything on, until it is stopped too.
"""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from e2e.bench.turns import group
from e2e.bench.turns.group import Group
from e2e.demo.metrics import percentile

STEP_SECONDS = 0.005
STUCK_SECONDS = 10.0
SETTLED_STEPS = 6  # that each makes in turns before the next failure
NAMES = ("engine-0", "engine-1", "engine-2")


def measure(folder: Path, times: int) -> dict[str, float]:
    """Have everything fail so often; returns percentiles of waits, and what stood still or overlapped."""
    failures: dict[str, Callable[[Group], float]] = {
        "killed": kill_holder,
        "stopped": stop_holder,
        "cut": cut_holder,
        "server_killed": kill_server,
        "server_stopped": stop_server,
    }
    figures: dict[str, float] = {"stuck": 0, "overlapping_steps_after_failures": 0}
    for failure, fail in failures.items():
        chance, waits = random.Random(failure), []
        (folder / failure).mkdir()
        with group.running(folder / failure, STEP_SECONDS, NAMES, forwarded=fail is cut_holder) as made:
            for _ in range(times):
                time.sleep(chance.uniform(0.0, 4 * STEP_SECONDS))
                try:
                    waits.append(1000 * fail(made))
                    figures["overlapping_steps_after_failures"] += settle(made)
                except TimeoutError as error:
                    print(f"{failure}: {error}")
                    figures["stuck"] += 1
        ordered = sorted(waits)
        figures[f"takeover_{failure}_p50_ms"] = percentile(ordered, 50)
        figures[f"takeover_{failure}_p99_ms"] = percentile(ordered, 99)
        print({key: round(value, 1) for key, value in figures.items()}, flush=True)
    return figures


def kill_holder(made: Group) -> float:
    """Kill whoever computes, and start it again; returns the seconds until another computes."""
    holder = computing(made)
    seconds = next_start(made, holder, made.signal(holder, signal.SIGKILL))
    made.start_member(holder)
    return seconds


def stop_holder(made: Group) -> float:
    """Stop whoever computes until another does; returns the seconds until then."""
    holder = computing(made)
    seconds = next_start(made, holder, made.signal(holder, signal.SIGSTOP))
    made.signal(holder, signal.SIGCONT)
    return seconds


def cut_holder(made: Group) -> float:
    """Cut off whoever computes, until it computes alone; returns the seconds until another computes."""
    holder = computing(made)
    at = made.signal(f"{holder}-forwarder", signal.SIGSTOP)
    seconds = next_start(made, holder, at)
    start_alone(made, holder, at)
    made.signal(f"{holder}-forwarder", signal.SIGCONT)
    return seconds


def kill_server(made: Group) -> float:
    """Kill the server, and start it again; returns the seconds until all have computed."""
    at = made.signal("server", signal.SIGKILL)
    seconds = max(start_alone(made, name, at) for name in NAMES)
    made.start_server()
    return seconds


def stop_server(made: Group) -> float:
    """Stop the server until all have computed; returns the seconds until then."""
    at = made.signal("server", signal.SIGSTOP)
    seconds = max(start_alone(made, name, at) for name in NAMES)
    made.signal("server", signal.SIGCONT)
    return seconds


def computing(made: Group) -> str:
    """Wait until a member computes in its turn; returns its name."""
    found: list[str] = []

    def look() -> bool:
        for name in NAMES:
            last = made.steps(name, last=1)
            if last and last[-1].end is None and not last[-1].alone:
                found.append(name)
        return bool(found)

    group.wait_until(look, "nobody computes", STUCK_SECONDS)
    return found[0]


def next_start(made: Group, holder: str, at: int) -> float:
    """Wait until another than `holder` begins a step; returns the seconds since `at`."""
    return first_start(made, [name for name in NAMES if name != holder], at, alone=False)


def start_alone(made: Group, name: str, at: int) -> float:
    """Wait until the member begins a step without a turn; returns the seconds since `at`."""
    return first_start(made, [name], at, alone=True)


def first_start(made: Group, names: list[str], at: int, *, alone: bool) -> float:
    """Wait until one of them begins a step in this way; returns the seconds since `at`."""
    starts: list[int] = []

    def look() -> bool:
        for name in names:
            starts.extend(
                step.start for step in made.steps(name, last=50) if step.start > at and step.alone == alone
            )
        return bool(starts)

    group.wait_until(look, f"none of {', '.join(names)} goes on", STUCK_SECONDS)
    return (min(starts) - at) / 1e9


def settle(made: Group) -> int:
    """Wait until all are in turns again; returns how many of those steps overlap."""
    since = time.monotonic_ns()
    latest: dict[str, list[group.Step]] = {}

    def look() -> bool:
        for name in NAMES:
            steps = [step for step in made.steps(name, last=SETTLED_STEPS + 1) if step.end is not None]
            latest[name] = steps[-SETTLED_STEPS:]
        return all(
            len(steps) == SETTLED_STEPS and all(step.start > since and not step.alone for step in steps)
            for steps in latest.values()
        )

    group.wait_until(look, "not all are in turns again", STUCK_SECONDS)
    together = max(steps[0].start for steps in latest.values())
    return group.overlapping([step for steps in latest.values() for step in steps if step.start >= together])
