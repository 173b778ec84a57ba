"""The comparison: which simulations are made, and what follows. Knows neither files nor processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_operator.simulate.candidates import Candidate
from headrace_operator.simulate.figures import ENOUGH, Figures, find_best, is_as_good
from headrace_operator.simulate.jobs import Job, Simulate
from headrace_operator.simulate.replicas import find_fewest

# Corners of what is not known about step times: attention in steps that mix prefill with decode (measured at
# 1.36 to 2.03 times the sum of its parts), and the host's time per step.
DOUBTS = ((1.8, 0.0), (1.0, 0.003), (1.8, 0.003))


@dataclass(frozen=True, slots=True)
class Study:
    """Everything in it is simulated."""

    candidates: tuple[Candidate, ...]
    figures: tuple[Figures, ...]  # of each candidate, with the service's replicas
    current: int  # index of what the service asks for now
    recommended: int  # index; `current` where no other is worth a change
    doubtful: int | None  # index of what looked better but does not with dearer steps
    replicas: int | None  # enough for `ENOUGH` with the recommended; None if more than `most`


def run_study(simulate: Simulate, candidates: Sequence[Candidate], replicas: int, most: int) -> Study:
    """Compare the candidates on `replicas` engines, and find how many of up to `most` the best one needs."""
    figures = simulate([Job(each.simulated, replicas) for each in candidates], "policies")
    current = next(number for number, each in enumerate(candidates) if each.current)
    recommended, doubtful = find_best(figures, current), None
    if recommended != current and not _holds(simulate, candidates, recommended, current, replicas):
        recommended, doubtful = current, recommended
    document = candidates[recommended].simulated
    known = {replicas: figures[recommended]}

    def enough(numbers: Sequence[int]) -> list[bool]:
        new = [number for number in numbers if number not in known]
        if new:
            jobs = [Job(document, number) for number in new]
            known.update(zip(new, simulate(jobs, f"replicas: {', '.join(map(str, new))}"), strict=True))
        return [known[number].met["all"] >= ENOUGH for number in numbers]

    return Study(
        candidates=tuple(candidates),
        figures=tuple(figures),
        current=current,
        recommended=recommended,
        doubtful=doubtful,
        replicas=find_fewest(enough, replicas, most, simulate.at_once),
    )


def _holds(simulate: Simulate, candidates: Sequence[Candidate], new: int, old: int, replicas: int) -> bool:
    jobs = [Job(candidates[which].simulated, replicas, *doubt) for doubt in DOUBTS for which in (new, old)]
    figures = simulate(jobs, "the same with dearer steps")
    return all(is_as_good(better, than) for better, than in zip(figures[::2], figures[1::2], strict=True))
