"""Admission (ours): a request starts if the KV of all that runs, as predicted, stays within the cache.

Everyone who runs gains a token each step until its padded predicted end, then frees its KV. So use is highest
just before somebody ends, and it is enough to look at those moments. Steps are counted on: a request's end
and what it holds less the step count do not change while it decodes, so nothing has to be computed anew for
those that just go on. What does change (chunks of a prefill, several tokens in a step, predictions outgrown)
is looked at again in turn.

What several running requests hold together, the same beginning of their prompts, is counted once and until
all of them have ended, as if they held it as long as anyone runs: there is no telling who of them will be the
last. It is what is in use now and that none of them holds alone.

The paper's host that lends the second half of its allocation is the case of this with two requests that start
together; here anyone's future room serves anyone else, and nobody has to give it back by preemption unless
predictions fail.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, count

from headrace_engine.policies.admission import prefill_fits
from headrace_engine.policies.econoserve.padded_lengths import PaddedLengths
from headrace_engine.policies.engine_view import LONGEST, EngineLimits, EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits
from headrace_engine.policies.token_deadlines import find_changes

LOOKED_AT = 32  # steps in which each running request is looked at once

Entry = tuple[int, int, int, RequestView]
"""(step of its end, number, tokens that it alone holds less the step count, request).

What layers with a window or a state hold soon grows no more: as much as at its end counts from the start, in
tokens of the others.
"""


class FuturePeak:
    """Follows the running requests; answers whether one more fits."""

    def __init__(self, limits: EngineLimits, reserved_percent: int, lengths: PaddedLengths) -> None:
        size = limits.block_size
        per_block = size / limits.kv_groups if limits.kv_groups else LONGEST
        self._limits, self._per_block = limits, per_block
        self._whole = int(limits.total_blocks * per_block)  # tokens
        self._capacity = self._whole * (100 - reserved_percent) / 100
        drafts = limits.decode_tokens - 1
        self._waste = (
            size - 1
        ) / 2 + drafts  # of a request's last block, on average, and what may be rejected
        self._lengths = lengths
        # A request that goes on as it was to is seen by its tokens alone.
        self._plain = lengths.steady and not (limits.keeps_kv or limits.other_groups)
        self._passed = 0.0
        self._step = 0  # in tokens that each has got since: what passes is steps, but for accepted drafts
        self._numbers = count()
        self._running: list[
            RequestView
        ] = []  # those of `_entries`: who runs, in the engine's order, or holds KV
        self._entries: dict[RequestView, Entry] = {}
        self._sorted: list[Entry] = []
        self._ends: list[int] | None = None  # None: to be measured anew, like the next two
        self._held: list[int] = []  # by those that end then or later, less their step counts
        self._peaks: list[float] = []  # highest use so far, plus the step count then
        self._finals = 0  # tokens that all will hold at their ends, in sum, each those that it alone holds
        self._now = 0  # tokens that all hold now, likewise, less their step counts
        self._shared: dict[RequestView, int] = {}  # tokens that others hold too, of those that share
        self._common = 0.0  # tokens held by several requests
        self._joined_others = False  # someone started who shares more than anyone did
        self._turn = 0
        self._prepared = False  # whether the turn's requests have been looked at since the last step began

    def limit_running(self, view: EngineView) -> RunningLimits:
        """Take in who runs now, as a step begins; nobody is limited."""
        self.follow(view)
        return NO_LIMITS

    def admit(self, ranked: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
        """Start in order as long as each fits; what runs alone always does."""
        if len(self._running) > len(view.running) + len(view.holding):  # someone stepped back in this step
            self._take_in([*view.running, *view.holding], view)
        for request in ranked:
            if len(view.running) >= self._limits.max_running:
                return  # whoever is asked for now would not start
            if self._running:
                if not prefill_fits(request, view):
                    return
                tokens, left = request.num_tokens, self._lengths.predict_left(request, view)
                if not (
                    self.fits(tokens, left) or self.fits(tokens - self._shared_tokens(request, view), left)
                ):
                    return
                self.enter(request, view, left)
            else:
                self.enter(request, view, self._lengths.predict_left(request, view))
            self._running.append(request)  # where the engine puts who starts
            yield request
            if view.running[-1:] != [request] and not request.num_computed_tokens:
                # It was put back, for want of its adapter or grammar; whose KV is being loaded holds it.
                self._strike(self._running.pop())

    def gauges(self) -> tuple[float]:
        """Return the percent of the cache that all take at their ends in sum."""
        return (100 * (self._finals + self._common) / self._whole,)

    def prepare(self, view: EngineView) -> None:
        """Look at whose turn it is, and at who ends with the step that is computed, if predictions hold.

        If such a one goes on, the next step would have to find out until when.
        """
        if view.holding or view.running != self._running:
            return  # then the next step looks at them
        self._prepared = True
        for entry in self._due(int(self._passed + view.tokens_per_step)):
            request = entry[3]
            if request.num_output_tokens and request.num_computed_tokens >= request.num_tokens:
                self._enter_anew(request, view, self._lengths.predict_left_ahead(request, view))
        for request in self._next_in_turn(self._running):
            self._look_at(request, view)

    def follow(self, view: EngineView) -> None:
        """Take in who runs now, a step after the last time."""
        self._passed += view.tokens_per_step
        self._step = int(self._passed)
        holding = view.holding
        running = [*view.running, *holding] if holding else view.running
        if running != self._running:
            self._take_in(running, view)
        for entry in self._due(self._step):
            self._look_at(entry[3], view)
        for request in holding:  # while its KV is being loaded its end moves away
            self._look_at(request, view)
        if self._joined_others:  # who held that beginning alone does so no more
            self._joined_others = False
            for request in running:
                self._look_at(request, view)
        elif not self._prepared:
            for request in self._next_in_turn(running):
                self._look_at(request, view)
        self._prepared = False
        self._common = self._held_together(view)

    def fits(self, tokens: int, left: int) -> bool:
        """Tell whether a request may start that takes KV for `tokens` at once, for `left` more at its end."""
        if self._limits.other_groups:
            tokens += self._besides(tokens + left)
        capacity = self._capacity - self._common
        if self._finals + tokens + left + (len(self._sorted) + 1) * self._waste <= capacity:
            return True  # even if all ended at once
        if self._ends is None:
            self._measure()
        ends = self._ends or []
        end, own = self._step + left, tokens - self._step + self._waste
        later = bisect_left(ends, end)
        at_end = own + end
        if later < len(ends):
            at_end += self._held[later] + (len(ends) - later) * (end + self._waste)
        if at_end > capacity:
            return False
        before = bisect_right(ends, end)
        return not before or self._peaks[before - 1] + own <= capacity

    def enter(self, request: RequestView, view: EngineView, left: int) -> None:
        """Take in that `request` starts, with `left` tokens to come.

        If it does not start after all, the next step finds out.
        """
        end = self._step + left
        shared = self._shared_tokens(request, view) if self._limits.keeps_kv else 0
        if shared:
            self._joined_others |= shared > max(self._shared.values(), default=0)
            self._shared[request] = shared
        held = self._held_at(request, end) if self._limits.other_groups else request.num_tokens
        entry = (end, next(self._numbers), held - shared - self._step, request)
        self._entries[request] = entry
        insort(self._sorted, entry)
        self._finals += entry[0] + entry[2]
        self._now += entry[2]
        self._ends = None

    def _strike(self, request: RequestView) -> None:
        entry = self._entries.pop(request)
        del self._sorted[bisect_left(self._sorted, entry)]
        self._shared.pop(request, None)
        self._finals -= entry[0] + entry[2]
        self._now -= entry[2]
        self._ends = None

    def _due(self, step: int) -> list[Entry]:
        """Return the entries of who is predicted to have ended by `step`."""
        due = []
        for entry in self._sorted:
            if entry[0] > step:
                break
            due.append(entry)
        return due

    def _take_in(self, running: Sequence[RequestView], view: EngineView) -> None:
        joined, left = find_changes(self._running, running, self._entries)
        for request in left:
            self._strike(request)
        for request in joined:
            self.enter(request, view, self._lengths.predict_left(request, view))
        self._running = list(running)

    def _next_in_turn(self, running: Sequence[RequestView]) -> list[RequestView]:
        """Return those whose turn it is to be looked at; not who plainly holds what it was to hold by now."""
        count = len(running)
        if not count:
            return []
        turns = range(self._turn + 1, self._turn + 1 - (-count // LOOKED_AT))
        self._turn = (turns.stop - 1) % count
        chosen = [running[turn % count] for turn in turns]
        if not self._plain:
            return chosen
        entries, step = self._entries, self._step
        return [
            request
            for request in chosen
            if entries[request][0] <= step or entries[request][2] + step != request.num_tokens
        ]

    def _look_at(self, request: RequestView, view: EngineView) -> None:
        entry = self._entries[request]
        shared = self._shared.get(request, 0)
        as_predicted = (
            entry[2] + self._step + shared == self._held_at(request, entry[0])
            and self._shared_tokens(request, view) == shared
        )
        if as_predicted and entry[0] > self._step and self._lengths.steady:
            return
        left = self._lengths.predict_left(request, view)
        if not as_predicted or entry[0] != self._step + left:
            self._enter_anew(request, view, left)

    def _enter_anew(self, request: RequestView, view: EngineView, left: int) -> None:
        self._strike(request)
        self.enter(request, view, left)

    def _held_at(self, request: RequestView, end: int) -> int:
        """Return the tokens that it holds now, if it ends in step `end`."""
        tokens = request.num_tokens
        return tokens + self._besides(tokens + end - self._step) if self._limits.other_groups else tokens

    def _shared_tokens(self, request: RequestView, view: EngineView) -> int:
        blocks = view.shared_blocks(request) if self._limits.keeps_kv else 0
        return self._limits.shared_tokens(blocks) if blocks else 0

    def _held_together(self, view: EngineView) -> float:
        """Return the tokens in use now that nobody holds alone."""
        if not self._shared:
            return 0.0
        in_use = (self._limits.total_blocks - view.free_blocks + view.promised_blocks) * self._per_block
        alone = self._now + len(self._sorted) * (self._step + self._waste)
        return max(in_use - alone, 0.0)

    def _besides(self, tokens: int) -> int:
        """Return what other layers hold when the request has `tokens`, in tokens of those that keep all."""
        return int(self._limits.other_blocks(tokens) * self._per_block) if self._limits.other_groups else 0

    def _measure(self) -> None:
        ends = [entry[0] for entry in self._sorted]
        held = list(accumulate(entry[2] for entry in reversed(self._sorted)))
        held.reverse()
        number, waste = len(ends), self._waste
        use = (held[i] + (number - i) * (end + waste) + end for i, end in enumerate(ends))
        self._peaks = list(accumulate(use, max))
        self._ends, self._held = ends, held
