"""An engine's scheduling loop without vLLM: the same steps in plain Python, for tests of whole policies.

Running requests are served in their order, the last loses its KV when blocks run out, then the plan's
requests start one by one; a step yields one token to each request that is not amid its prefill.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ep_engine_view import FakeRequest

from headrace_engine.adapter.policy_guard import PolicyGuard
from headrace_engine.policies.engine_view import NO_TARGETS

FIXED_SECONDS, TOKEN_SECONDS = 0.02, 0.00005


@dataclass(eq=False, slots=True)
class PureRequest(FakeRequest):
    output: int = 1  # tokens that it will produce
    predicted: float = 1.0  # tokens that it is predicted to produce
    first_predicted: float | None = None
    held: int = 0  # KV blocks
    started_at: float | None = None
    finished_at: float | None = None
    first_token: tuple | None = None


@dataclass
class PureEngine:
    """`make`: of the policy. Nothing here is shared between engines. `step` gives the scheduled tokens."""

    limits: object
    make: object
    targets_of: dict = field(default_factory=dict)
    cost: object = None
    token_at_most: object = None
    seconds: object = None  # of a step, from (prefill tokens, decodes, their context)
    watermark_blocks: int = 0  # that whoever starts leaves free

    def __post_init__(self):
        self.now = 0.0
        self.queue = OrderedDict()
        self.running = []
        self.free_blocks = self.limits.total_blocks
        self.steps = self.preemptions = self.idle_steps = 0
        self.finished = []
        self.guard = PolicyGuard(self, self.make, lambda: 0.0)

    # What a policy sees.
    holding = ()
    tokens_per_step = 1.0
    encoder_token = 0.0

    def first_token(self, request):
        return request.first_token

    @property
    def waiting(self):
        return self.queue

    @property
    def promised_blocks(self):
        return sum(
            self.limits.blocks(request.num_tokens) - request.held
            for request in self.running
            if request.num_computed_tokens < request.num_tokens
        )

    def targets(self, request):
        return self.targets_of.get(request.request_id, NO_TARGETS)

    def predicted_output(self, request):
        if request.predicted <= request.num_output_tokens:
            request.predicted = request.num_output_tokens * 1.5 + 1
        return min(request.predicted, request.max_tokens)

    def predict_ahead(self, request):
        output = request.num_output_tokens + 1
        return min(request.predicted if request.predicted > output else output * 1.5 + 1, request.max_tokens)

    def most_output(self, request):
        return request.max_tokens

    def cached_tokens(self, request):
        return 0

    def shared_blocks(self, request):
        return 0

    # What clients do.
    def add(self, request):
        request.first_predicted = request.predicted
        self.queue[request] = None
        self.guard.add(request)

    def abort(self, request):
        if request in self.queue:
            del self.queue[request]
            self.guard.discard(request)
        elif request in self.running:
            self.running.remove(request)
            self._release(request)

    def send(self, request, *, aborted):
        """Add `request` for a step, or to its end; whether it is to be served."""
        self.add(request)
        self.step()
        if aborted:
            self.abort(request)
        return not aborted

    # What the engine does.
    def step_until_idle(self, most):
        """Step until nobody is left, `most` times at most."""
        for _ in range(most):
            if not self.queue and not self.running:
                break
            self.step()

    def step(self):
        self.steps += 1
        untold = []
        plan = self.guard.plan_step()
        admitted = self.guard.admitted()
        running_limits = plan.running_limits
        if running_limits.running is not None:
            self.running = list(running_limits.running)
        for request in running_limits.preempted:
            self.running.remove(request)
            self._to_queue(request, untold)
        scheduled, preempted = self._serve_running(plan, untold)
        if not preempted:
            self._admit(iter(tuple(self.queue)) if admitted is None else admitted, plan, scheduled, untold)
        prefilling = {
            request for request in scheduled if request.num_tokens - request.num_computed_tokens > 1
        }
        for request, count in scheduled.items():  # vLLM counts them before they are computed
            request.num_computed_tokens += count
        for tell, request in untold:
            tell(request)
        tokens = sum(scheduled.values())
        self.guard.finish_step(tokens)
        self.guard.prepare_next()
        self._deliver(scheduled, prefilling)
        if not tokens and (self.queue or self.running):
            self.idle_steps += 1
        return tokens

    def _serve_running(self, plan, untold):
        budget, scheduled, preempted, place = plan.step_tokens, {}, False, 0
        skipped, caps = set(plan.running_limits.skipped), plan.running_limits.chunk_caps
        while place < len(self.running) and budget:
            request = self.running[place]
            place += 1
            if request in skipped:
                continue
            tokens = request.num_tokens - request.num_computed_tokens
            tokens = min(tokens, budget, caps.get(request, tokens))
            while not self._allocate(request, tokens):
                victim = self.running.pop()
                preempted = True
                self._to_queue(victim, untold)
                if victim is request:
                    break
            if request.held:
                scheduled[request] = tokens
                budget -= tokens
            else:
                break
        return scheduled, preempted

    def _admit(self, admitted, plan, scheduled, untold):
        budget = plan.step_tokens - sum(scheduled.values())
        while budget > 0 and len(self.running) < self.limits.max_running:
            request = next(admitted, None)
            room = self.free_blocks - self.promised_blocks - (self.watermark_blocks if self.running else 0)
            if request is None or self.limits.blocks(request.num_tokens) > room:
                break
            tokens = min(request.num_tokens, budget, plan.running_limits.chunk_caps.get(request, budget))
            assert self._allocate(request, tokens)
            del self.queue[request]
            untold.append((self.guard.discard, request))
            self.running.append(request)
            scheduled[request] = tokens
            budget -= tokens
            if request.started_at is None:
                request.started_at = self.now

    def _allocate(self, request, tokens):
        needed = self.limits.blocks(request.num_computed_tokens + tokens) - request.held
        if needed > self.free_blocks:
            return False
        request.held += max(needed, 0)
        self.free_blocks -= max(needed, 0)
        return True

    def _to_queue(self, request, untold):
        self._release(request)
        self.preemptions += 1
        request.num_preemptions += 1
        request.num_computed_tokens = 0
        self.queue[request] = None
        self.queue.move_to_end(request, last=False)
        untold.append((self.guard.add, request))

    def _release(self, request):
        self.free_blocks += request.held
        request.held = 0

    def _deliver(self, scheduled, prefilling):
        prefill = decodes = context = 0
        for request, tokens in scheduled.items():
            if request in prefilling:
                prefill += tokens
            else:
                decodes, context = decodes + 1, context + request.num_computed_tokens - tokens
        if self.seconds is not None:
            self.now += self.seconds(prefill, decodes, context)
        else:
            self.now += FIXED_SECONDS + TOKEN_SECONDS * (prefill + decodes)
        for request in scheduled:
            if request.num_computed_tokens == request.num_tokens:
                request.num_tokens += 1
                request.num_output_tokens += 1
                request.first_token = request.first_token or (self.now, 1)
                if request.num_output_tokens >= request.output:
                    request.finished_at = self.now
                    self.guard.report_finished(request, request.first_predicted)
                    self.running.remove(request)
                    self._release(request)
                    self.finished.append(request)


def serve_to_the_end(engine, requests, most=20_000):
    """Serve whoever is left, in so many steps at most; `requests` are among those that finished."""
    engine.step_until_idle(most)
    assert set(requests) <= set(engine.finished)
    assert engine.free_blocks == engine.limits.total_blocks
    assert engine.guard.fallback_steps == 0
    assert not engine.guard.disabled


def serve_among_short_ones(engine, short_output):
    """Serve a long request among short ones that never end; return it."""
    long = PureRequest("long", 0.0, 800, max_tokens=400)
    long.output = 400
    number = 0
    while long.finished_at is None and engine.steps < 20_000:
        while len(engine.queue) < 12:
            number += 1
            if number == 50:
                engine.add(long)
            short = PureRequest(str(number), engine.now, 200, max_tokens=short_output)
            short.output = short_output
            engine.add(short)
        engine.step()
    return long
