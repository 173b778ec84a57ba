"""How long an engine's steps take by how many tokens they compute: straight lines between a few sizes.

One straight line over all sizes, as the sidecar fits it, is up to 15 % off on a CPU, whose cores compute many
tokens at once better than a few.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_engine.control.records import StepSample
from headrace_engine.cost.fit import ME
from headrace_engine.cost.model import Batch, Profile

SIZES = (1, 4, 8, 16, 32, 64, 128, 256, 512)  # tokens of a step from which on another line counts
OUTLIER = 1.3  # times the expected seconds; what took longer counts less
ROUNDS = 4  # of weighing steps by what is expected of them


@dataclass(frozen=True, slots=True)
class StepTable:
    """fixed + lines over T + per_work W + per_context S, seconds; T, W and S as in `cost.forms`."""

    fixed: float
    per_token: tuple[float, ...]  # beyond each of SIZES, up to the next
    per_work: float
    per_context: float
    profile: Profile = ME

    def step_seconds(self, batch: Batch) -> float:
        """Return how many seconds one step takes."""
        tokens = batch.prefill_tokens + batch.decodes
        seconds = self.fixed
        for size, following, slope in zip(SIZES, (*SIZES[1:], tokens), self.per_token, strict=True):
            if tokens <= size:
                break
            seconds += slope * (min(tokens, following) - size)
        return seconds + self.attention_seconds(batch)

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with W and S."""
        return self.per_work * batch.prefill_work + self.per_context * batch.decode_context


def numbers(table: StepTable) -> dict[str, float]:
    """Write a table as named numbers; `read` reads them."""
    slopes = {f"per_token_from_{size}": slope for size, slope in zip(SIZES, table.per_token, strict=True)}
    return {
        "fixed": table.fixed,
        **slopes,
        "per_work": table.per_work,
        "per_context": table.per_context,
    }


def read(written: Mapping[str, float]) -> StepTable:
    """Read what `numbers` wrote."""
    slopes = tuple(written[f"per_token_from_{size}"] for size in SIZES)
    return StepTable(written["fixed"], slopes, written["per_work"], written["per_context"])


def fit(steps: Sequence[StepSample]) -> StepTable:
    """Fit the table so that the relative error is least, no slope negative; `steps` must not be empty.

    A step that took far longer than expected, as when the machine stalled, counts less.
    """
    made = np.array(steps, dtype=np.float64)
    prefill, work, decodes, context, seconds = made.T
    features = np.column_stack([np.ones(len(made)), _stretches(prefill + decodes), work, context])
    expected, weight, found = seconds, np.ones(len(made)), np.zeros(features.shape[1])
    for _ in range(ROUNDS):
        by = weight / expected
        found = _non_negative(features * by[:, None], seconds * by)
        expected = features @ found
        weight = np.minimum(1.0, OUTLIER * expected / seconds)
    fixed, *slopes, per_work, per_context = (float(each) for each in found)
    return StepTable(fixed, tuple(slopes), per_work, per_context)


def _stretches(tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the tokens of each step in each stretch that begins at one of SIZES."""
    ends = (*SIZES[1:], np.inf)
    return np.column_stack([np.clip(tokens, size, end) - size for size, end in zip(SIZES, ends, strict=True)])


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
