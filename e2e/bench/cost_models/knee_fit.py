"""The knee form fitted to step times: fixed + (floor^p + (per_token T)^p)^(1/p) + ..., least relative error.

For a given p the soft maximum is homogeneous in floor and per_token: it is the sum of both times its slopes
in them. So each step of Gauss-Newton is a linear least squares for the coefficients themselves, none of which
may be negative.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace_engine.cost.forms import Knee
from headrace_engine.cost.model import Batch, CostModel, Profile

SHARPNESS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0)  # the p that are tried
STEPS = 60  # of Gauss-Newton; each goes half way, a whole one may swing around the knee
Floats = npt.NDArray[np.float64]


def fit_knee(profile: Profile, batches: Sequence[Batch], seconds: Sequence[float]) -> Knee:
    """Find the knee whose mean relative error is least."""
    fits = [_fit(profile, batches, np.array(seconds), p) for p in SHARPNESS]
    return min(fits, key=lambda fit: error_percent(fit, batches, seconds))


def error_percent(cost: CostModel, batches: Sequence[Batch], seconds: Sequence[float]) -> float:
    """Return the mean absolute error, relative to the true times."""
    modelled = np.array([cost.step_seconds(batch) for batch in batches])
    return float(np.mean(np.abs(modelled / np.array(seconds) - 1))) * 100


def _fit(profile: Profile, batches: Sequence[Batch], seconds: Floats, p: float) -> Knee:
    tokens, work, decodes, context = np.array(
        [
            (each.prefill_tokens + each.decodes, each.prefill_work, each.decodes, each.decode_context)
            for each in batches
        ],
        dtype=float,
    ).T
    shortest = float(seconds.min())
    floor, per_token = shortest, float(np.median(seconds / tokens))
    found = np.zeros(6)
    for _ in range(STEPS):
        reading, computing = floor / shortest, per_token * tokens / shortest
        dense = (reading**p + computing**p) ** (1 / p)
        by_floor, by_token = (reading / dense) ** (p - 1), (computing / dense) ** (p - 1) * tokens
        columns = np.stack([np.ones_like(tokens), by_floor, by_token, work, decodes, context], axis=1)
        found = fit_to_one(columns / seconds[:, None])
        floor = (floor + max(found[1], shortest / 1000)) / 2
        per_token = (per_token + found[2]) / 2
    fixed, _, _, per_work, per_decode, per_context = (float(each) for each in found)
    return Knee(profile, fixed, float(floor), float(per_token), p, per_work, per_decode, per_context)


def fit_to_one(columns: Floats) -> Floats:
    """Return the coefficients, none negative, with which the columns add up to about 1 in every row.

    Columns whose coefficients come out negative are left out, the worst first.
    """
    scale = np.linalg.norm(columns, axis=0)
    kept = list(range(len(scale)))
    found = np.zeros(len(scale))
    while kept:
        solved = np.linalg.lstsq((columns / scale)[:, kept], np.ones(len(columns)), rcond=None)[0]
        if solved.min() >= 0:
            found[kept] = solved / scale[kept]
            break
        del kept[int(np.argmin(solved))]
    return found
