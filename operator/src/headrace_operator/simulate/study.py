"""The comparison: which simulations are made, and what follows. Knows neither files nor processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headrace_engine.contracts import PolicyDocument
from headrace_engine.cost.known_error import Figure
from headrace_operator.simulate.candidates import Candidate
from headrace_operator.simulate.figures import ENOUGH, Figures, find_best, is_as_good
from headrace_operator.simulate.intervals import (
    DRAWS,
    REPLICA_DRAWS,
    Intervals,
    compare,
    excludes_no_change,
    find_intervals,
    plan_draws,
)
from headrace_operator.simulate.jobs import Job, Simulate
from headrace_operator.simulate.replicas import find_fewest

# Corners of what is not known about step times: attention in steps that mix prefill with decode (measured at
# 1.36 to 2.03 times the sum of its parts), and the host's time per step.
DOUBTS = ((1.8, 0.0), (1.0, 0.003), (1.8, 0.003))

OffBy = Mapping[Figure, float]
"""Factors by which the simulator may be off, see `headrace_engine.cost.known_error`."""


@dataclass(frozen=True, slots=True)
class Rival:
    """The best of the other settings, if any is worth a change, against today's."""

    number: int  # its index
    intervals: Intervals
    change: Intervals  # differences of shares, ratios of times, to today's
    refuted_by: Literal["steps", "interval"] | None  # why it is not recommended

    @property
    def recommended(self) -> bool:
        """Whether it is better with dearer steps too, and at both ends of the interval."""
        return self.refuted_by is None


@dataclass(frozen=True, slots=True)
class Study:
    """Everything in it is simulated."""

    candidates: tuple[Candidate, ...]
    figures: tuple[Figures, ...]  # of each candidate, with the service's replicas
    current: int  # index of what the service asks for now
    now: Intervals  # of today's setting
    rival: Rival | None
    replicas: int | None  # enough for `ENOUGH` with the recommended; None if more than were tried
    sure_replicas: int | None  # enough at the low end of the interval, too

    @property
    def recommended(self) -> int:
        """Index of the setting to use: the current one where no other is surely worth a change."""
        return self.rival.number if self.rival and self.rival.recommended else self.current


@dataclass(frozen=True, slots=True)
class _Simulations:
    """What a study asks to be simulated, and what it knows already."""

    simulate: Simulate
    off_by: OffBy
    seed: int
    known: dict[tuple[str, int], Figures] = field(default_factory=dict)  # by hash of the policy, and replicas

    def serve(self, document: PolicyDocument, numbers: Sequence[int]) -> list[Figures]:
        """Serve the trace with each of these numbers of replicas."""
        new = [number for number in numbers if (document.hash, number) not in self.known]
        if new:
            jobs = [Job(document, number) for number in new]
            found = self.simulate(jobs, f"replicas: {', '.join(map(str, new))}")
            self.known.update(
                {(document.hash, number): each for number, each in zip(new, found, strict=True)}
            )
        return [self.known[document.hash, number] for number in numbers]

    def draw(self, documents: Sequence[PolicyDocument], replicas: int, count: int) -> list[list[Figures]]:
        """Serve the same `count` draws under each document."""
        draws = plan_draws(count, self.off_by["tpot"], self.seed)
        jobs = [Job(document, replicas, draw=draw) for document in documents for draw in draws]
        found = self.simulate(jobs, f"other traffic, {replicas} {'replica' if replicas == 1 else 'replicas'}")
        return [found[start : start + count] for start in range(0, len(found), count)]


def run_study(
    simulate: Simulate, candidates: Sequence[Candidate], replicas: int, most: int, *, off_by: OffBy, seed: int
) -> Study:
    """Compare the candidates on `replicas` engines, and find how many of up to `most` the best one needs."""
    documents = [each.simulated for each in candidates]
    figures = simulate([Job(document, replicas) for document in documents], "policies")
    current = next(number for number, each in enumerate(candidates) if each.current)
    simulations = _Simulations(simulate, off_by, seed)
    simulations.known.update(
        {(document.hash, replicas): each for document, each in zip(documents, figures, strict=True)}
    )
    best = find_best(figures, current)
    which = [current] if best == current else [current, best]
    drawn = simulations.draw([documents[number] for number in which], replicas, DRAWS)
    intervals: list[Intervals] = [
        find_intervals(figures[number], each, off_by) for number, each in zip(which, drawn, strict=True)
    ]
    rival = None
    if best != current:
        change = compare(figures[best], figures[current], drawn[1], drawn[0])
        refuted_by = _refute(simulate, documents[best], documents[current], replicas, change)
        rival = Rival(best, intervals[1], change, refuted_by)
    chosen, sure = documents[current], intervals[0]
    if rival and rival.recommended:
        chosen, sure = documents[best], rival.intervals
    fewest = find_fewest(
        lambda numbers: [each.met["all"] >= ENOUGH for each in simulations.serve(chosen, numbers)],
        replicas,
        most,
        simulate.at_once,
    )
    sure_replicas = fewest and _find_sure(simulations, chosen, fewest, most, {replicas: sure})
    return Study(
        candidates=tuple(candidates),
        figures=tuple(figures),
        current=current,
        now=intervals[0],
        rival=rival,
        replicas=fewest,
        sure_replicas=sure_replicas,
    )


def _find_sure(
    simulations: _Simulations,
    document: PolicyDocument,
    fewest: int,
    most: int,
    known: Mapping[int, Intervals],
) -> int | None:
    """Return the fewest replicas, from `fewest` on, that are enough at the low end of the interval."""

    def intervals(number: int) -> Intervals:
        if number in known:
            return known[number]
        [figures] = simulations.serve(document, [number])
        [drawn] = simulations.draw([document], number, REPLICA_DRAWS)
        return find_intervals(figures, drawn, simulations.off_by)

    def enough(numbers: Sequence[int]) -> list[bool]:
        return [number >= fewest and intervals(number)["met_all"].low >= ENOUGH for number in numbers]

    return find_fewest(enough, fewest, most, at_once=1)


def _refute(
    simulate: Simulate, new: PolicyDocument, old: PolicyDocument, replicas: int, change: Intervals
) -> Literal["steps", "interval"] | None:
    """Say what speaks against `new`, which looks better: dearer steps, or an interval with no gain in it."""
    jobs = [Job(document, replicas, *doubt) for doubt in DOUBTS for document in (new, old)]
    dearer = simulate(jobs, "the same with dearer steps")
    if not all(is_as_good(better, than) for better, than in zip(dearer[::2], dearer[1::2], strict=True)):
        return "steps"
    return None if excludes_no_change(change) else "interval"
