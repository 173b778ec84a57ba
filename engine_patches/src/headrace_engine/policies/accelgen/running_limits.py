"""What AccelGen takes from running requests: long prompts wait for short, urgent requests preempt others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from headrace_engine.policies.accelgen.order import UrgencyOrder
from headrace_engine.policies.accelgen.step_estimate import StepEstimate
from headrace_engine.policies.engine_view import EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits

SHARE = 16  # a running prefill gets the step's prefill tokens over this at least, however many go ahead
AHEAD = 16  # waiting requests that may go ahead of a running prefill in one step
SCARCE = 4  # fewer free blocks than running requests over this: someone may soon lose its KV
VICTIMS = 4  # most requests that one step preempts
AGAIN = 2  # preemptions after which a request is left alone


class RunningLimiter:
    """AccelGen's limiter: ERA, Algorithm 1's preemption, and the decodes that `steps` skips."""

    def __init__(self, order: UrgencyOrder, steps: StepEstimate, *, exclusive: bool, preemption: str) -> None:
        self._order = order
        self._steps = steps
        self._exclusive = exclusive
        self._preemption = preemption
        self.preempted = 0  # for urgent ones, in sum

    def __call__(self, view: EngineView) -> RunningLimits:
        """What running requests give up in this step."""
        caps: Mapping[RequestView, int] = {}
        running: Sequence[RequestView] | None = None
        preempted: Sequence[RequestView] = ()
        skipped = self._steps.skipped
        if self._preemption != "Never" and view.running:
            if view.waiting:
                preempted = self._victims(view)
                self.preempted += len(preempted)
            if view.free_blocks * SCARCE < len(view.running) * view.limits.kv_groups:
                running = self._relaxed_last(view)
        prefills = [
            request
            for request in self._steps.deadlines.prefills()
            if request.num_computed_tokens < request.num_tokens and request not in preempted
        ]
        if prefills:
            caps = self._chunks(prefills, view)
        if not (caps or preempted or skipped) and running is None:
            return NO_LIMITS
        if preempted and skipped:
            skipped = [request for request in skipped if request not in preempted]
        return RunningLimits(running, skipped, preempted, caps)

    def _chunks(self, prefills: list[RequestView], view: EngineView) -> dict[RequestView, int]:
        """Share the step among running prefills, with room for waiting ones ahead of them that fit whole.

        Never what is meant for decodes: those that started after it come behind it in the engine's order.
        Exclusive request allocation [section 4.2]: who does not fit whole has to wait until the long ones
        that started are through, so that few of them hold KV at a time.
        """
        total = left = self._steps.prefill_tokens
        waiting = self._order.ranked(view) if self._exclusive and view.waiting else iter(())
        head = next(waiting, None)
        caps = {}
        ahead = 0
        keys = sorted((self._key(request, view), place) for place, request in enumerate(prefills))
        for (late, tokens), place in keys:
            while head is not None and ahead < AHEAD:
                its_tokens = self._order.tokens(head)
                if its_tokens > left - total // SHARE:
                    break
                if (self._order.is_hopeless(head), its_tokens) >= (late, tokens):
                    break
                left -= its_tokens
                ahead += 1
                head = next(waiting, None)
            cap = max(min(tokens, left), total // SHARE, 1)
            caps[prefills[place]] = cap
            left = max(left - cap, 0)
        return caps

    def _key(self, request: RequestView, view: EngineView) -> tuple[bool, int]:
        """Tell whether a running prefill is hopeless, and how many tokens it has left."""
        left = request.num_tokens - request.num_computed_tokens
        return self._order.latest_start(request, left, view) < view.now, left

    def _relaxed_last(self, view: EngineView) -> Sequence[RequestView] | None:
        """Put the running request that can wait longest last, of those looked at in this step."""
        candidates = [each.request for each in self._steps.deadlines.looked_at]
        if not candidates:
            return None
        last = max(reversed(candidates), key=lambda request: self._can_wait(request, view))
        return [request for request in view.running if request is not last] + [last]

    def _victims(self, view: EngineView) -> list[RequestView]:
        """Choose running requests to make room for the most urgent one, that can be in time all the same.

        `UnlessLate` is ours: while requests wait that are late already there is more work than time, and to
        compute a victim's KV anew makes more requests late than it saves.
        """
        urgent = self._order.urgent(view)
        if not urgent or (self._preemption == "UnlessLate" and self._order.counts()[1]):
            return []
        needed = view.limits.blocks(urgent[0].num_tokens) - view.shared_blocks(urgent[0])
        room = view.free_blocks - view.promised_blocks
        full = len(view.running) >= view.limits.max_running
        if needed <= room and not full:
            return []
        candidates = [each.request for each in self._steps.deadlines.looked_at]
        spare = [
            (self._can_wait(request, view) - self._steps.prefill_seconds(request.num_tokens), place)
            for place, request in enumerate(candidates)
            if request.num_preemptions < AGAIN
        ]
        victims: list[RequestView] = []
        for seconds, place in sorted(spare, reverse=True)[:VICTIMS]:
            if seconds <= self._steps.prefill_seconds(self._order.tokens(urgent[0])):
                break
            victim = candidates[place]
            victims.append(victim)
            room += view.limits.blocks(victim.num_tokens) - view.shared_blocks(victim)
            if needed <= room:
                return victims
        return []

    def _can_wait(self, request: RequestView, view: EngineView) -> float:
        """Return T_r of a running request: seconds that it can stand still and be in time; inf: no target."""
        entry = self._steps.deadlines.find_request(request)
        if entry is None:
            return 0.0
        seconds = inf
        if entry.since is None:
            left = request.num_tokens - request.num_computed_tokens
            seconds = self._order.latest_start(request, left, view) - view.now
        elif entry.tpot is not None:
            seconds = entry.saved(view.now)
        if entry.deadline is not None and entry.since is not None:
            left_seconds = self._steps.deadlines.token * (
                view.predicted_output(request) - request.num_output_tokens
            )
            seconds = min(seconds, entry.deadline - view.now - left_seconds)
        return seconds
