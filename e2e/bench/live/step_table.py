"""How long an engine's steps take by how many tokens they compute: measured sizes, straight lines between.

On a CPU a step of 192 tokens may take less than one of 160: kernels suit some sizes. One straight line over
all, as the sidecar fits it, is up to 15 % off there, and a search for the best step budget would find where
it is off most.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace_engine.control.records import StepSample
from headrace_engine.cost.fit import ME, is_plausible
from headrace_engine.cost.model import Batch, Profile

FEWEST = 4  # steps nearest to a size that it needs for a point of its own
MOST_OFF = 100.0  # times what is expected, as far as weights go
OUTLIER = 1.3  # times the expected seconds; what took longer counts less
ROUNDS = 4  # of weighing steps by what is expected of them


@dataclass(frozen=True, slots=True)
class StepTable:
    """Seconds at some `sizes` in tokens, two at least, + per_work W + per_context S, as in `cost.forms`."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    per_work: float
    per_context: float
    profile: Profile = ME

    def step_seconds(self, batch: Batch) -> float:
        """Return how many seconds one step takes; beyond the largest size the last line goes on."""
        tokens, sizes, seconds = batch.prefill_tokens + batch.decodes, self.sizes, self.seconds
        right = min(max(bisect_right(sizes, tokens), 1), len(sizes) - 1)
        left = right - 1
        share = max(tokens - sizes[left], 0) / (sizes[right] - sizes[left])
        return seconds[left] + share * (seconds[right] - seconds[left]) + self.attention_seconds(batch)

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with W and S."""
        return self.per_work * batch.prefill_work + self.per_context * batch.decode_context

    def slower(self, factor: float) -> "StepTable":
        """Return the table of steps that each take so many times as long."""
        return replace(
            self,
            seconds=tuple(factor * each for each in self.seconds),
            per_work=factor * self.per_work,
            per_context=factor * self.per_context,
        )


def slowness(table: StepTable, steps: Sequence[StepSample]) -> float:
    """Return how many times as long as in the table `steps` took in sum; raises ValueError if none did."""
    plausible = [step for step in steps if is_plausible(step)]
    expected = sum(table.step_seconds(Batch(*step[:4])) for step in plausible)
    if not expected:
        raise ValueError("there are no steps")
    return sum(step.seconds for step in plausible) / expected


def numbers(table: StepTable) -> dict[str, float]:
    """Write a table as named numbers; `read` reads them."""
    points = zip(table.sizes, table.seconds, strict=True)
    return {
        **{f"step_of_{size}": seconds for size, seconds in points},
        "per_work": table.per_work,
        "per_context": table.per_context,
    }


def read(written: Mapping[str, float]) -> StepTable:
    """Read what `numbers` wrote."""
    points = {name: value for name, value in written.items() if name.startswith("step_of_")}
    sizes = tuple(int(name.removeprefix("step_of_")) for name in points)
    return StepTable(sizes, tuple(points.values()), written["per_work"], written["per_context"])


def fit(steps: Sequence[StepSample], budgets: Sequence[int]) -> StepTable:
    """Fit the table, nothing negative, so that the relative error is least.

    Its sizes are the step `budgets` and, below, powers of two, as far as there are steps of about such sizes;
    raises ValueError with fewer than two. A step that took far longer than expected, as when the machine
    stalled, counts less.
    """
    made = np.array(steps, dtype=np.float64).reshape(-1, 5)
    prefill, work, decodes, context, seconds = made.T
    tokens = prefill + decodes
    sizes = np.array(possible_sizes(budgets), dtype=np.float64)
    while len(sizes) >= 2:
        shown = (_shares(tokens, sizes) > 0.5).sum(axis=0)
        if shown.min() >= FEWEST:
            break
        sizes = np.delete(sizes, shown.argmin())
    if len(sizes) < 2:
        raise ValueError(f"{len(made)} steps show fewer than two sizes")
    features = np.column_stack([_shares(tokens, sizes), work, context])
    expected, weight, found = seconds, np.ones(len(made)), np.zeros(features.shape[1])
    for _ in range(ROUNDS):
        by = weight / expected
        found = _non_negative(features * by[:, None], seconds * by)
        expected = np.maximum(features @ found, seconds / MOST_OFF)
        weight = np.minimum(1.0, OUTLIER * expected / seconds)
    *points, per_work, per_context = (float(each) for each in found)
    return StepTable(tuple(int(size) for size in sizes), tuple(points), per_work, per_context)


def possible_sizes(budgets: Sequence[int]) -> list[int]:
    """Return the powers of two below the least of `budgets`, then these."""
    return [*(1 << place for place in range((min(budgets) - 1).bit_length())), *sorted(budgets)]


def _shares(tokens: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much of each size is in each step, between two of them: rows add up to 1."""
    right = np.clip(np.searchsorted(sizes, tokens, side="right"), 1, len(sizes) - 1)
    share = np.clip((tokens - sizes[right - 1]) / (sizes[right] - sizes[right - 1]), 0.0, None)
    shares = np.zeros((len(tokens), len(sizes)))
    rows = np.arange(len(tokens))
    shares[rows, right] = share
    shares[rows, right - 1] = 1.0 - share
    return shares


def _non_negative(features: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit by least squares; the most negative is left out until none is."""
    used = list(range(features.shape[1]))
    found = np.zeros(len(used))
    while used:
        values = np.linalg.lstsq(features[:, used], target)[0]
        worst = int(np.argmin(values))
        if values[worst] >= 0:
            found[used] = values
            break
        del used[worst]
    return found
