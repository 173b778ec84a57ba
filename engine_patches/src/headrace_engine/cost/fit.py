"""How long this engine's steps take, learned from the steps that it made.

Estimators are pure state with constant memory. They forget by count, not by time: an idle engine keeps what
it knew, a busy one follows a change of load within its half-life.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace_engine.control.records import StepSample
from headrace_engine.cost.forms import Linear
from headrace_engine.cost.model import Batch, Profile

STEP_HALF_LIFE = 2000  # samples; some seconds of decoding, still with some prefills among them
MIN_PREFILLS = 8  # samples with prefill before a rate is worth telling
SHORTEST_STEP = 1e-6  # seconds; what took less counts as that much
LONGEST_STEP = 600.0  # seconds; what took longer was a machine asleep
COLLINEAR = 1e-6  # share of a feature's variance that must be its own for its slope to be told
OUTLIER = 4.0  # times the expected duration; what took longer counts less
FEATURES = 4  # prefill tokens, decodes, their context, prefill work
REFIT = 64  # samples after which expectations are renewed, if not before
ME = Profile("", "", 1, "this engine", "live fit of its own steps")
_TERMS = ("fixed", "per_prefill", "per_work", "per_decode", "per_context")


def cost_numbers(cost: Linear) -> dict[str, float]:
    """Write a live fit as the seconds of each term; `read_cost` reads them."""
    return {name: getattr(cost, name) for name in _TERMS}


def read_cost(numbers: Mapping[str, float]) -> Linear:
    """Read a live fit from the seconds of each of its terms."""
    return Linear(ME, **{name: numbers[name] for name in _TERMS})


def is_plausible(sample: StepSample) -> bool:
    """Tell whether a step can take such a time; others are not for `StepFit`."""
    return 0 < sample.seconds <= LONGEST_STEP


class DecayedMean:
    """Mean of a series in which a value counts half after `half_life` more; 0 while empty."""

    def __init__(self, half_life: float) -> None:
        self._keep = 0.5 ** (1 / half_life)
        self._weight = 0.0
        self.value = 0.0

    def add(self, value: float) -> None:
        """Take one value into account."""
        self._weight = self._weight * self._keep + 1
        self.value += (value - self.value) / self._weight


class StepFit:
    """Online least squares of seconds ≈ fixed + a P + b D + c S + d W, none negative; constant memory.

    P prefill tokens, D decodes, S their context, W prefill work. Kept are decayed weighted means and sums of
    centred products. A step counts by its expected duration squared, so that the relative error is least: a
    step of 5 ms says as much as one of 100. One that took far longer than expected, as when the machine
    stalled, counts less. A feature that is all but a mixture of those before it gets no slope of its own;
    those whose slopes come out negative are left out, the worst first.
    """

    def __init__(self, half_life: float = STEP_HALF_LIFE) -> None:
        self._keep = 0.5 ** (1 / half_life)
        self._weight = 0.0
        self._mean = [0.0] * (FEATURES + 1)  # the features, then the seconds
        self._products = [[0.0] * (FEATURES + 1) for _ in range(FEATURES)]  # the upper triangle is kept
        self._prefills = 0
        self._tokens = self._work = self._token_seconds = 0.0  # decayed sums over steps with prefill
        self._token_at_most: float | None = None
        self._enough = MIN_PREFILLS  # prefills, for the next renewal
        self._expected: Linear | None = None
        self._since = 0  # samples since then

    def add(self, sample: StepSample) -> None:
        """Take one step of more than 0 seconds into account."""
        tokens, work, decodes, context, seconds = sample
        keep, mean = self._keep, self._mean
        expected = self._expected.step_seconds(_batch(sample)) if self._expected else mean[4]
        weight = 1 / max(expected or seconds, seconds / OUTLIER, SHORTEST_STEP) ** 2
        self._weight = self._weight * keep + weight
        step = weight / self._weight
        # Written out, since it is done for every step and loops take twice as long.
        p, d, s, w = tokens - mean[0], decodes - mean[1], context - mean[2], work - mean[3]
        mean[0] += p * step
        mean[1] += d * step
        mean[2] += s * step
        mean[3] += w * step
        mean[4] += (seconds - mean[4]) * step
        to_d, to_s, to_w, to_t = decodes - mean[1], context - mean[2], work - mean[3], seconds - mean[4]
        p, d, s, w = weight * p, weight * d, weight * s, weight * w
        of_p, of_d, of_s, of_w = self._products
        of_p[0] = of_p[0] * keep + p * (tokens - mean[0])
        of_p[1] = of_p[1] * keep + p * to_d
        of_p[2] = of_p[2] * keep + p * to_s
        of_p[3] = of_p[3] * keep + p * to_w
        of_p[4] = of_p[4] * keep + p * to_t
        of_d[1] = of_d[1] * keep + d * to_d
        of_d[2] = of_d[2] * keep + d * to_s
        of_d[3] = of_d[3] * keep + d * to_w
        of_d[4] = of_d[4] * keep + d * to_t
        of_s[2] = of_s[2] * keep + s * to_s
        of_s[3] = of_s[3] * keep + s * to_w
        of_s[4] = of_s[4] * keep + s * to_t
        of_w[3] = of_w[3] * keep + w * to_w
        of_w[4] = of_w[4] * keep + w * to_t
        if tokens > 0:
            self._prefills += 1
            self._tokens = self._tokens * keep + tokens
            self._work = self._work * keep + work
            self._token_seconds = self._token_seconds * keep + seconds
            each = seconds / tokens
            self._token_at_most = min(self._token_at_most or each, each)
        self._since += 1
        if self._since >= REFIT or self._prefills >= self._enough:
            self._since = 0
            self._expected = self.cost()
            self._enough = max(2 * self._prefills if self._expected else self._prefills + 1, MIN_PREFILLS)

    @property
    def latest(self) -> Linear | None:
        """The cost as of the last renewal; free to ask for.

        It is renewed at the first MIN_PREFILLS, at twice as many and so on, and every REFIT samples.
        """
        return self._expected

    @property
    def token_at_most(self) -> float | None:
        """Seconds that a prompt token takes at most in steps with more of them than any so far.

        A step has a fixed cost, which more tokens share. None before the first prefill; free to ask for.
        """
        return self._token_at_most

    def cost(self) -> Linear | None:
        """Fit the cost; None until prefills of different sizes were seen."""
        if self._prefills < MIN_PREFILLS or self._products[0][0] <= 0:
            return None
        fixed, slopes = self._line()
        per_prefill, per_decode, per_context, per_work = slopes
        if per_prefill + per_work <= 0:
            return None
        return Linear(ME, fixed, per_prefill, per_work, per_decode, per_context)

    def prefill_rate(self, step_tokens: int) -> float:
        """Return the prompt tokens per second in steps of `step_tokens`; 0 while unknown.

        Never below what steps with prefill really did: a full step spreads its fixed cost over more tokens.
        """
        if self._prefills < MIN_PREFILLS:
            return 0.0
        seen = self._tokens / self._token_seconds
        cost = self.cost()
        if cost is None or step_tokens <= 0:
            return seen
        full = Batch(step_tokens, self._work / self._tokens * step_tokens)  # of prompts like those seen
        return max(seen, step_tokens / cost.step_seconds(full))

    def _line(self) -> tuple[float, list[float]]:
        """Fit the intercept and the slopes, none negative."""
        products, mean = self._products, self._mean
        slopes = _fit(products)
        fixed = mean[-1] - sum(slope * centre for slope, centre in zip(slopes, mean, strict=False))
        if fixed >= 0:
            return fixed, slopes
        through_zero = [
            [value + self._weight * mean[row] * centre for value, centre in zip(line, mean, strict=True)]
            for row, line in enumerate(products)
        ]
        return 0.0, _fit(through_zero)


def _batch(sample: StepSample) -> Batch:
    return Batch(sample.prefill_tokens, sample.prefill_work, sample.decodes, sample.decode_context)


def _fit(products: list[list[float]]) -> list[float]:
    """Fit non-negative slopes to the upper triangle of sums of products, whose last column is the seconds."""
    used = [index for index in range(FEATURES) if products[index][index] > 0]
    while used:
        scale = [products[index][index] ** 0.5 for index in used]
        matrix = [
            [
                products[min(row, column)][max(row, column)] / (left * right)
                for column, right in zip(used, scale, strict=True)
            ]
            for row, left in zip(used, scale, strict=True)
        ]
        target = [products[row][FEATURES] / left for row, left in zip(used, scale, strict=True)]
        found = _solve(matrix, target)
        worst = min(range(len(used)), key=found.__getitem__)
        if found[worst] >= 0:
            slopes = [0.0] * FEATURES
            for index, value, by in zip(used, found, scale, strict=True):
                slopes[index] = value / by
            return slopes
        del used[worst]
    return [0.0] * FEATURES


def _solve(matrix: list[list[float]], target: list[float]) -> list[float]:
    """Solve a symmetric matrix with a diagonal of ones by Gauss; what hangs on earlier rows gets 0."""
    size = len(target)
    rows = [[*line, value] for line, value in zip(matrix, target, strict=True)]
    free = []
    for pivot in range(size):
        if rows[pivot][pivot] <= COLLINEAR:
            continue
        free.append(pivot)
        for below in range(pivot + 1, size):
            factor = rows[below][pivot] / rows[pivot][pivot]
            for column in range(pivot, size + 1):
                rows[below][column] -= factor * rows[pivot][column]
    found = [0.0] * size
    for pivot in reversed(free):
        known = sum(rows[pivot][column] * found[column] for column in range(pivot + 1, size))
        found[pivot] = (rows[pivot][size] - known) / rows[pivot][pivot]
    return found
