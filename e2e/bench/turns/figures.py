"""What the runs of two engines that share a core come to."""

import itertools
import re
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.bench.report import intervals
from e2e.bench.turns import group
from e2e.bench.turns.group import Step
from e2e.bench.turns.sharing_engines import LONG, SHORT, Answer
from e2e.demo.metrics import percentile
from headrace_engine.turns.messages import Kind

BOTH = "all"
BOUND = re.compile("(_low|_high|_seeds)?$")  # of a figure that has an interval


@dataclass(frozen=True, slots=True)
class Pair:
    """The answers to the same requests with turns, and free for all."""

    turns: Sequence[Answer]
    free: Sequence[Answer]


def compared(pairs: Sequence[Pair], alone: Mapping[str, float]) -> dict[str, float]:
    """Compare latencies, each in multiples of its service's alone, and count answers that differ."""
    made: dict[str, float] = {}
    for service in (BOTH, SHORT, LONG):
        turns, free = (
            [[answer for answer in answers if service in {BOTH, answer.service}] for answers in each]
            for each in ([pair.turns for pair in pairs], [pair.free for pair in pairs])
        )
        end = "" if service == BOTH else f"_{service}"
        looked_at: dict[str, Callable[[Sequence[Answer]], float]] = {
            "norm_latency": lambda answers: statistics.fmean(norms(answers, alone)),
            "norm_latency_p99": lambda answers: percentile(sorted(norms(answers, alone)), 99),
            "ttft": lambda answers: statistics.fmean(answer.ttft for answer in answers),
            "tpot": lambda answers: statistics.fmean(map(tpot, answers)),
        }
        for name, figure in looked_at.items():
            ratio = intervals.ratio([figure(each) for each in turns], [figure(each) for each in free])
            made |= intervals.keyed(f"{name}_ratio_freeforall{end}", ratio)
        made[f"norm_latency_turns{end}"] = statistics.fmean(
            map(statistics.fmean, (norms(each, alone) for each in turns))
        )
        made[f"norm_latency_freeforall{end}"] = statistics.fmean(
            map(statistics.fmean, (norms(each, alone) for each in free))
        )
    made["requests"] = sum(len(pair.turns) for pair in pairs)
    made["outputs_changed"] = sum(
        ours.tokens != theirs.tokens
        for pair in pairs
        for ours, theirs in zip(pair.turns, pair.free, strict=True)
    )
    return made


def of_async(name: str) -> str:
    """Return the name of a figure for engines that schedule asynchronously."""
    return BOUND.sub(r"_async\1", name, count=1)


def norms(answers: Sequence[Answer], alone: Mapping[str, float]) -> list[float]:
    """Return each answer's latency, in multiples of what its service's takes alone."""
    return [answer.e2e / alone[answer.service] for answer in answers]


def tpot(answer: Answer) -> float:
    """Return the mean seconds from token to token."""
    return (answer.e2e - answer.ttft) / (len(answer.tokens) - 1)


def of_logs(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return what engines wrote down of the times in which they took turns."""
    steps = sorted(
        (
            Step(name, start, end or None, alone=False)
            for name, log in logs.items()
            for start, end in in_turns(log)
        ),
        key=lambda step: step.start,
    )
    gaps = [
        (step.start - before.end) / 1e3
        for before, step in itertools.pairwise(steps)
        if before.end is not None and before.member != step.member and step.start - before.end < 5e7
    ]
    waited = [count for name in logs for count in foreign_steps(name, logs)]
    return {
        "overlapping_steps": group.overlapping(steps),
        "steps_in_turns": len(steps),
        "turns_waited_for": len(waited),
        "foreign_steps_waited_max": max(waited, default=0),
        "keep_turn_us_p50": statistics.median(kept for log in logs.values() for kept in log["kept"]) / 1e3,
        "engine_hand_over_us_p50": statistics.median(gaps),
    }


def in_turns(log: Any) -> Iterator[tuple[int, int]]:
    """Yield the steps that the engine scheduled while it held the turn."""
    grants, releases = (
        [at for at, kind, _, _ in log[side] if kind == wanted]
        for side, wanted in (("heard", Kind.GRANT), ("said", Kind.RELEASE))
    )
    for start, end in log["steps"]:
        granted, released = (bisect_right(times, start) for times in (grants, releases))
        if granted and (not released or releases[released - 1] < grants[granted - 1]):
            yield start, end


def foreign_steps(name: str, logs: Mapping[str, Any]) -> list[int]:
    """Return how many steps the other began while this engine waited for its turn with the lesser priority.

    Of each wait through which the other never said that its own priority is the lesser, and so kept its turn.
    """
    [other] = [log for each, log in logs.items() if each != name]
    starts = [start for start, _ in other["steps"]]
    kept = [at for at, kind, _, _ in other["said"] if kind == Kind.KEEP]
    wants = [at for at, kind, _, _ in logs[name]["said"] if kind == Kind.WANT]
    grants = [at for at, kind, _, _ in logs[name]["heard"] if kind == Kind.GRANT]
    found = []
    for want in wants:
        grant = next((at for at in grants if at > want), None)
        if grant is not None and not any(want < at < grant for at in kept):
            found.append(sum(want < start < grant for start in starts))
    return found
