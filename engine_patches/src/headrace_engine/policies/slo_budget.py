"""SLO: as many tokens as the targets of the requests that are generating leave time for.

AccelGen's token budget [section 4.2]. Its equation 6 scales the pivot forward size, from which the GPU is
busy, by the tightest SLO over that size's time. Step times are no such line: a step costs something even
when empty, decodes pay for their context, prefills for theirs. So the live cost model is inverted instead:
the budget is the largest whose predicted time is within what `token_deadlines` allows.

Who has neither a TPOT nor an E2E target leaves the choice to us. Then a step is as large as the pivot: from
there on more tokens make no step worth mentioning cheaper by the token, and all requests wait for longer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from math import inf

from headrace_engine.cost.model import Batch, CostModel
from headrace_engine.policies.engine_view import EngineView, RequestView
from headrace_engine.policies.token_deadlines import TokenDeadlines

SATURATED = 0.9  # of the most tokens per second: the pivot
WHEN_FULL, WHEN_FREE = 0.5, 4.0  # pivots that a step prefills at most while requests wait
LEAST = 0.6  # likewise: E2E targets press no step below this
FLOOR = 8  # a step prefills at least the pivot over this, or waiting would never end
FIRST = 128  # prompt tokens of a step whose time nothing is known of
CLOSE = 0.01  # of the allowed time may remain unused
RENEWED = 8  # steps after which the shortest step is predicted anew
LOOKED_AT = 32  # waiting requests whose prompts are added up
PROBES = 8  # most looks at the cost model for one budget


class SloBudget:
    """A step budget with a state; the rest of a policy may use `deadlines` after it was called."""

    def __init__(self) -> None:
        self.deadlines = TokenDeadlines()
        self.skipping = False  # may decodes that are far ahead of their targets skip steps that others need
        self.skipped: list[RequestView] = []  # those that skip the step planned last
        self._cost: CostModel | None = None
        self._pivot = self._least = self._prefill = 0  # prefill tokens; the last those of the last step
        self._cached = 0  # tokens of the next waiting prompt, to whose context its others attend
        self._encoding = 0.0  # seconds that encoders take for each prompt token
        self._steps = 0

    def __call__(self, view: EngineView) -> int:
        """Return how many tokens the step may compute."""
        cost, limits, deadlines = view.cost, view.limits, self.deadlines
        self.skipped = []
        if cost is None:
            deadlines.observe_step(view)
            return self._blind(view)
        if cost is not self._cost:
            self._cost = cost
            # A fit of a few steps may miss the fixed cost that each has: then the smallest would be the best.
            self._pivot = max(
                find_pivot(cost, limits.max_step_tokens, SATURATED), min(FIRST, limits.max_step_tokens)
            )
            self._least = find_pivot(cost, limits.max_step_tokens, LEAST)
        self._steps += 1
        if self._steps % RENEWED == 1 or not deadlines.shortest:
            seconds = self._seconds(cost)
            deadlines.shortest, deadlines.balanced = seconds(0), seconds(self._least)
        deadlines.observe_step(view)
        head = next(iter(view.waiting), None)
        self._cached = 0 if head is None else view.cached_tokens(head)
        self._encoding = self._encoded(view) if view.encoder_token else 0.0
        busy = bool(view.waiting) or len(view.running) > deadlines.decodes
        prefill = self._most(cost, view)
        if self.skipping and deadlines.limit is not None and busy and self._is_short(view, prefill):
            skipped = deadlines.find_skippable(deadlines.limit, view)
            # The tightest runs on where all would skip: who waits may find no KV, and the step nobody to run.
            self.skipped = skipped if len(skipped) < len(view.running) else skipped[1:]
            deadlines.record_skips(self.skipped)
            prefill = self._most(cost, view) if self.skipped else prefill
        self._prefill = prefill
        deadlines.planned = self._seconds(cost)(prefill if busy else 0)
        tokens = prefill + (deadlines.decodes - len(self.skipped)) * limits.decode_tokens
        return min(max(tokens, len(view.running) * limits.decode_tokens, 1), limits.max_step_tokens)

    def _blind(self, view: EngineView) -> int:
        """Return the tokens of a step while its cost is unknown: few enough for the target, by steps so far.

        Prompt tokens get cheaper by the token as a step gets larger, so what they took so far is an upper
        bound, and each step may be larger than the one before.
        """
        limits, limit, each = view.limits, self.deadlines.limit, view.token_at_most
        if limit is None:
            return limits.max_step_tokens
        decodes = self.deadlines.decodes * limits.decode_tokens
        prefill = FIRST if each is None else max(int(limit / each), FIRST // FLOOR)
        least = max(len(view.running) * limits.decode_tokens, limits.min_step_tokens)
        return min(max(decodes + prefill, least), limits.max_step_tokens)

    def _most(self, cost: CostModel, view: EngineView) -> int:
        """Return the prefill tokens for which the step has time beside the decodes that are not skipped."""
        limits, limit = view.limits, self.deadlines.limit
        decodes = (self.deadlines.decodes - len(self.skipped)) * limits.decode_tokens
        most = max(limits.max_step_tokens - decodes, 0)
        floor = min(max(self._pivot // FLOOR, limits.min_step_tokens - decodes, 0), most)
        if limit is None:
            return max(min(self._pivot, most), floor)
        if view.waiting:
            most = max(min(most, self._as_kv_fills(view)), floor)
        return find_most_tokens(self._seconds(cost), limit, floor, most, self._prefill)

    def _as_kv_fills(self, view: EngineView) -> int:
        """Return the prefill tokens that are of use: more would wait for KV, which short steps free.

        Half the pivot where the cache is full, and four pivots more for all of it.
        """
        free = max(view.free_blocks - view.promised_blocks, 0) / view.limits.total_blocks
        return int(self._pivot * (WHEN_FULL + WHEN_FREE * free))

    def _is_short(self, view: EngineView, prefill: int) -> bool:
        """Tell whether more prompt tokens want into the step than it has time for."""
        waiting = view.waiting if len(view.running) < view.limits.max_running else ()
        for request in self.deadlines.prefills():
            prefill -= request.num_tokens - request.num_computed_tokens
        for request in islice(waiting, LOOKED_AT):
            if prefill < 0:
                break
            prefill -= request.num_tokens - view.cached_tokens(request)
        return prefill < 0

    def _encoded(self, view: EngineView) -> float:
        """Return the encoders' seconds for each prompt token, over the next prompts that fill such a step.

        A picture can't be split, so the one step that encodes it takes longer; on average it comes out right,
        and targets are for means.
        """
        wanted, prompt, encoded = max(self._prefill, FIRST), 0, 0
        for request in chain(self.deadlines.prefills(), islice(view.waiting, LOOKED_AT)):
            prompt += request.num_tokens - view.cached_tokens(request)
            encoded += view.encoder_tokens(request)
            if prompt >= wanted:
                break
        return view.encoder_token * encoded / prompt if prompt > 0 else 0.0

    def _seconds(self, cost: CostModel) -> Callable[[int], float]:
        """Return the seconds of a step that prefills so many tokens beside the decodes that there are."""
        decodes, context = self.deadlines.decodes, self.deadlines.context
        cached, encoding = self._cached, self._encoding
        typical = max(self.deadlines.prompt - cached, 0.0)
        if self.skipped:
            decodes -= len(self.skipped)
            context = max(context - sum(request.num_tokens for request in self.skipped), 0)
        first = next(self.deadlines.prefills(), None)
        done = 0 if first is None else first.num_computed_tokens
        left = 0 if first is None else max(first.num_tokens - done, 0)

        def seconds(prefill: int) -> float:
            of_first = min(prefill, left)
            rest = prefill - of_first
            work = of_first * (done + of_first / 2) + rest * (cached + min(rest, typical) / 2)
            return cost.step_seconds(Batch(prefill, work, decodes, context, 1)) + prefill * encoding

        return seconds


def slo_budget() -> SloBudget:
    """Make a new budget; the factory that the registry knows."""
    return SloBudget()


def find_most_tokens(
    seconds: Callable[[int], float], allowed: float, low: int, high: int, guess: int = 0
) -> int:
    """Find the most tokens from `low` to `high` whose step takes no longer than allowed; `low` if none does.

    Short of the most by what takes `CLOSE` of the time, at most. Where seconds bend upwards, as they do,
    the chord lies above them, so interpolation closes in from below. A good guess saves most of the work.
    """
    enough = (1 - CLOSE) * allowed
    at_low = at_high = -1.0  # not looked at yet
    if low < guess < high:
        at_guess = seconds(guess)
        if enough <= at_guess <= allowed:
            return guess
        if at_guess < allowed:
            low, at_low = guess, at_guess
        else:
            high, at_high = guess, at_guess
    if at_low < 0:
        at_low = seconds(low)
    if low >= high or at_low >= allowed:
        return low
    if at_high < 0:
        at_high = seconds(high)
        if at_high <= allowed:
            return high
    for probe in range(PROBES):
        if high - low <= 1 or at_low >= enough:
            break
        share = (allowed - at_low) / (at_high - at_low) if probe < PROBES // 2 else 0.5
        middle = min(max(low + int((high - low) * share), low + 1), high - 1)
        at_middle = seconds(middle)
        if at_middle <= allowed:
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle
    return low


def find_pivot(cost: CostModel, most: int, share: float) -> int:
    """Find the pivot: fewest prefill tokens per step that reach `share` of the tokens per second of `most`.

    Attention is left out: a token costs it however steps are cut. The paper measures the pivot on each GPU.
    """

    def rate(tokens: int) -> float:
        seconds = cost.step_seconds(Batch(prefill_tokens=tokens))
        return tokens / seconds if seconds > 0 else inf

    wanted = share * rate(most)
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if rate(middle) >= wanted:
            high = middle
        else:
            low = middle
    return high
