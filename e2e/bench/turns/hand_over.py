"""What a turn costs: to keep it, and to hand it over, by stand-ins for engines whose steps are a sleep."""

import itertools
import statistics
import time
from pathlib import Path

from e2e.bench.turns import group
from e2e.demo.metrics import percentile
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.turns.connection import join_group

NAMES = tuple(f"engine-{number}" for number in range(4))
STEP_SECONDS = 0.02
KEPT = 20_000  # turns


def measure(folder: Path, seconds: float) -> dict[str, float]:
    """Hand over at every step for so long, then keep a turn that nobody asks for."""
    with group.running(folder, STEP_SECONDS, NAMES) as made:
        time.sleep(seconds)
        steps = [step for name in NAMES for step in made.steps(name)]
    steps = sorted(
        (step for step in steps if step.end is not None and not step.alone), key=lambda step: step.start
    )
    gaps = [
        (step.start - before.end) / 1e3
        for before, step in itertools.pairwise(steps)
        if before.end is not None and before.member != step.member
    ]
    return {
        "hand_overs": len(gaps),
        "hand_over_us_p50": statistics.median(gaps),
        "hand_over_us_p99": percentile(sorted(gaps), 99),
        "hand_over_percent_of_step": statistics.median(gaps) / (1e4 * STEP_SECONDS),
        "hand_over_overlapping_steps": group.overlapping(steps),
        "keep_alone_us_p50": keep(folder / "keep"),
    }


def keep(folder: Path) -> float:
    """Return the median microseconds of keeping the turn in one's own process."""
    folder.mkdir()
    made = group.Group(folder, STEP_SECONDS)
    try:
        made.start_server()
        member = join_group(TurnGroup(group.HOST, made.port, made.token), lambda: 1.0)
        group.wait_until(lambda: member.may_step(0.1) and member.holds, "it gets no turn")
        took = []
        for _ in range(KEPT):
            began = time.perf_counter_ns()
            member.may_step()
            took.append(time.perf_counter_ns() - began)
        member.close()
    finally:
        made.stop()
    return statistics.median(took) / 1e3
