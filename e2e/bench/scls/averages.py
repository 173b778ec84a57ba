"""Figures over the seeds of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate
from e2e.bench.runs.pool import Figures
from e2e.bench.scls.cases import MIDDLE, SEEDS, Case

Found = Mapping[Case, Figures]
Make = Callable[[int, int], Case]
"""Makes a case from a rate and a seed."""


def like(case: Case) -> Make:
    """Make `case` at any rate, with any seed."""
    return lambda rate, seed: replace(case, rate=rate, seed=seed)


def mean(found: Found, figure: str, make: Make, rate: int = MIDDLE) -> Estimate:
    """Estimate a figure's mean over seeds."""
    return intervals.mean([float(found[make(rate, seed)][figure]) for seed in SEEDS])


def ratio_of_means(found: Found, figure: str, ours: Make, theirs: Make, rate: int = MIDDLE) -> float:
    """Return our mean over theirs."""
    return mean(found, figure, ours, rate).value / mean(found, figure, theirs, rate).value
