"""vLLM's engine loop on a virtual clock: real scheduler, real KV cache manager, a model that is only a cost.

The loop is that of vLLM's EngineCore. Requests that came meanwhile join before a step is planned. A step
takes as long as the cost model says, and yields one token for each request that is not in the middle of its
prefill. With asynchronous scheduling two steps are in flight: the next one is planned before the last one's
tokens are known, and the GPU goes over to it without a pause, so a request that arrives waits for the step
under way and for the one planned behind it. What the CPU does meanwhile takes the seconds of a `HostTime`,
none by default.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any

from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import RequestStatus

from headrace_engine.adapter.step_features import step_features
from headrace_engine.contracts import PolicyDocument, Slo
from headrace_engine.cost.host import NO_HOST_TIME, HostTime
from headrace_engine.cost.model import Batch, CostModel
from headrace_engine.sim.clock import Compose, MemoryLink, VirtualClock
from headrace_engine.sim.decisions import Decisions
from headrace_engine.sim.form import Form
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.prefixes import PrefixHashes
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.shortcuts import ANY_TOKEN
from headrace_engine.sim.simulated_turns import Seat
from headrace_engine.sim.vllm_objects import make_scheduler, text_request
from headrace_engine.sim.workloads.arrival import Arrival

NAP = 0.001  # seconds for which EngineCore sleeps when it has requests but could schedule none
MOMENT = 1e-9  # seconds to which the ends of steps are exact
STALLED_NAPS = 20_000  # in a row, with nothing in flight: the engine will never go on
SAMPLED, NOTHING_SAMPLED = [ANY_TOKEN], list[int]()  # vLLM only ever trims them to one token


@dataclass(frozen=True, slots=True)
class Foresight:
    """What a policy in a simulation knows beyond what it would in production; nothing, by default.

    `cost`: what it takes for the engine's cost from the start, instead of what it learns from steps. `slo`:
    targets of a policy that is no document. How long outputs will be it can know from `Arrival.hint`, if the
    targets have `per_request`.
    """

    cost: CostModel | None = None
    slo: Slo = field(default_factory=Slo)


NO_FORESIGHT = Foresight()


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A request that an engine has not finished, as who passes its answer on sees it.

    `tokens`: prompt and what was delivered of the answer. `delivered`: tokens of the answer, by whatever
    engine.
    """

    name: str
    outcome: Outcome
    tokens: int
    delivered: int


@dataclass(slots=True)
class _Step:
    """A step in flight, and when the GPU begins and ends it."""

    output: Any
    result: ModelRunnerOutput
    starts_at: float
    ends_at: float


class SimulatedEngine:
    """One engine, driven from outside: `advance` carries out what is due at `next_event_at`.

    Whoever drives it adds all arrivals of a moment before advancing to it. `policy`: None is vLLM without our
    adapter. `listening`: keep boards, step samples and finished requests on `link`, as a sidecar sees them.
    `quick`: with the shortcuts that change no decision; without, only to prove that. `foresight`: what the
    policy knows of the future. `host`: seconds that the CPU takes. `seat`: its place in a group that takes
    turns; stock vLLM has none.
    """

    def __init__(
        self,
        settings: EngineSettings,
        cost: CostModel,
        policy: PolicyDocument | Form | Compose | None = None,
        *,
        number: int = 0,
        listening: bool = False,
        quick: bool = True,
        foresight: Foresight = NO_FORESIGHT,
        host: HostTime = NO_HOST_TIME,
        seat: Seat | None = None,
    ) -> None:
        self.settings = settings
        self.cost = cost
        self.host = host
        self.number = number
        self.clock = VirtualClock(0.0)
        self.link: MemoryLink | None = None
        self._hands_back = isinstance(policy, PolicyDocument) and bool(
            policy.slice and policy.slice.hand_back
        )
        if isinstance(policy, PolicyDocument | Form):
            self.link = MemoryLink(self.clock, document=policy, listens=listening)
        elif policy is not None:
            self.link = MemoryLink(self.clock, compose=policy, listens=listening)
        if self.link is not None:
            self.link.known_cost = foresight.cost
            self.link.slo = foresight.slo
            self.link.longest = settings.max_model_len
        self.scheduler = make_scheduler(settings, self.link, quick=quick)
        self._seat = seat
        if seat is not None:
            if self.link is None:
                raise ValueError("stock vLLM takes no turns: give the engine a policy")
            self.link.turn_group, self.link.join_group = seat.group, seat.join
            seat.take(self.scheduler, self.clock, self._wake)
        self.next_event_at = inf
        self.outcomes: list[Outcome] = []  # in the order of `add`
        self.decisions = Decisions()
        self.steps = self.preemptions = 0
        self.busy_seconds = self.kv_seconds = 0.0  # the second weighted by the share of KV blocks in use
        self._pool = self.scheduler.kv_cache_manager.block_pool
        self._hashes = PrefixHashes(settings.block_size) if settings.prefix_caching else None
        self._names = count()
        self.handed_back: list[Stream] = []  # for whoever drives it to take
        self._live: dict[str, Outcome] = {}
        self._requests: dict[str, Any] = {}  # those of `_live`, if they may be handed back
        self._arrived: deque[tuple[float, Any]] = deque()  # with when the loop can first see them
        self._in_flight: deque[_Step] = deque()
        self._gpu_free_at = self._host_free_at = self._front_end_free_at = 0.0
        self._planned_any = False  # tokens in the step planned last
        self._blocked = False  # the loop waits for the oldest step in flight
        self._slowness = 1.0
        self._naps = 0

    def add(self, arrival: Arrival, now: float) -> Outcome:
        """Take `arrival` at the engine; its outcome fills in as it is served.

        Raises ValueError if it can never be served.
        """
        refusal = self.settings.refusal(arrival.prompt_tokens, arrival.output_tokens)
        if refusal is not None:
            raise ValueError(f"request at {arrival.at:.3f} s: {refusal}")
        outcome = Outcome(arrival, self.number)
        self.outcomes.append(outcome)
        self._take_in(outcome, arrival, now)
        return outcome

    def streams(self) -> list[Stream]:
        """List what is with the scheduler and not finished."""
        found = []
        for name, outcome in self._live.items():
            request = self.scheduler.requests.get(name)
            if request is not None:
                found.append(Stream(name, outcome, request.num_tokens, request.num_output_tokens))
        return found

    def leave(self, stream: Stream) -> None:
        """End a stream here, as a client that leaves would."""
        self.scheduler.finish_requests(stream.name, RequestStatus.FINISHED_ABORTED)
        self._forget(stream.name)

    def go_on(self, stream: Stream, now: float) -> None:
        """Go on with a stream that left another engine: it comes with a prompt of all that it has."""
        arrival = stream.outcome.arrival
        stream.outcome.engine = self.number
        self._take_in(stream.outcome, arrival, now, stream.delivered)

    def _forget(self, name: str) -> Outcome:
        self._requests.pop(name, None)
        return self._live.pop(name)

    def _hand_back(self, name: str) -> None:
        request, outcome = self._requests[name], self._forget(name)
        self.handed_back.append(Stream(name, outcome, request.num_tokens, request.num_output_tokens))

    def _take_in(self, outcome: Outcome, arrival: Arrival, now: float, delivered: int = 0) -> None:
        name = str(next(self._names))
        hasher = None if self._hashes is None else self._hashes.hasher(arrival)
        self._live[name] = outcome
        request = text_request(name, arrival, now, hasher, movable=self._hands_back)
        if delivered:  # as `adapter.resume` has it
            request.append_output_token_ids([ANY_TOKEN] * delivered)
            request.prefill_stats = None
        if self._hands_back:
            self._requests[name] = request
        self._arrived.append((now + self.host.intake, request))
        if self.next_event_at == inf:
            self.next_event_at = now + self.host.intake

    def advance(self) -> list[Outcome]:
        """Carry out what is due at `next_event_at`, and set it to what is due then, inf if nothing is.

        Gives the outcomes that are complete now.
        """
        self.clock.now = self.next_event_at
        finished: list[Outcome] = []
        if self._blocked:
            self._blocked = False
            finished = self._deliver()
            if not self._planned_any and self.scheduler.has_requests():
                self._take_nap()
                return finished
        self._turn()
        return finished

    def cached_blocks(self, arrival: Arrival) -> int:
        """Count the KV blocks of the prompt's beginning that are in the cache, as KV events would tell."""
        if self._hashes is None:
            return 0
        held = 0
        for block_hash in self._hashes.shared_hashes(arrival):
            if self._pool.get_cached_block(block_hash, [0]) is None:
                break
            held += 1
        return held

    def slow_down(self, factor: float) -> None:
        """Make steps planned from now on take `factor` times as long as the cost model says."""
        self._slowness = factor

    def computing(self, now: float) -> tuple[float, float]:
        """Return when the GPU begins and ends the first step that it has not finished; infinity for none."""
        return next(((step.starts_at, step.ends_at) for step in self._unfinished(now)), (inf, inf))

    def awaits_gpu(self, now: float) -> bool:
        """Tell whether nothing is due here before the GPU has finished a step."""
        return self._blocked and self._in_flight[0].ends_at > now + MOMENT

    def put_off(self, seconds: float, now: float) -> None:
        """Have the GPU end whatever it has not finished so many seconds later."""
        if unfinished := self._unfinished(now):
            self._gpu_free_at += seconds
            for step in unfinished:
                step.starts_at += seconds
                step.ends_at += seconds
            if self._blocked:
                self._await_step()

    def _unfinished(self, now: float) -> list[_Step]:
        return [step for step in self._in_flight if step.ends_at > now + MOMENT]

    def fail(self) -> list[Outcome]:
        """End the engine; what it had not finished is returned, in order of arrival, and stays lost."""
        lost = list(self._live.values())
        self._live.clear()
        self._arrived.clear()
        self._in_flight.clear()
        self.next_event_at = inf
        return lost

    def _turn(self) -> None:
        """Make one pass of vLLM's `step` or `step_with_batch_queue`, up to where they block."""
        scheduler, in_flight, depth = self.scheduler, self._in_flight, self.settings.depth
        arrived, now = self._arrived, self.clock.now
        while True:
            while arrived and arrived[0][0] <= now:
                scheduler.add_request(arrived.popleft()[1])
            self._planned_any = False
            if scheduler.has_requests():
                self._plan()
                if len(in_flight) < depth:
                    if self._planned_any:
                        continue
                    if scheduler.has_requests():
                        self._take_nap()
                        return
            elif not in_flight:
                self.next_event_at = arrived[0][0] if arrived else inf
                return
            self._blocked = True
            self._await_step()
            return

    def _await_step(self) -> None:
        ends_at = self._in_flight[0].ends_at
        self.next_event_at = max(self.clock.now, ends_at, self._host_free_at)  # it may have ended in a nap

    def _wake(self, at: float) -> None:
        """Take in that the turn begins at `at`."""
        if not self._blocked:
            self.next_event_at = min(self.next_event_at, at)

    def _take_nap(self) -> None:
        if self._seat is not None and self._seat.waits:
            arrives_at = self._arrived[0][0] if self._arrived else inf
            self.next_event_at = max(self.clock.now, min(self._seat.granted_at, arrives_at))
            return
        self._naps += 1
        if self._naps > STALLED_NAPS:
            waiting = self.scheduler.get_request_counts()[1]
            raise RuntimeError(f"the engine stands still with {waiting} requests waiting: nobody is admitted")
        self.next_event_at = self.clock.now + NAP

    def _plan(self) -> None:
        output = self.scheduler.schedule()
        if output.num_scheduled_tokens or self.settings.depth == 1:  # vLLM does it while the device computes
            self.scheduler.get_grammar_bitmask(output)
        self.steps += 1
        now, tokens = self.clock.now, output.num_scheduled_tokens
        self.decisions.add(output)
        if output.preempted_req_ids:
            self.preemptions += len(output.preempted_req_ids)
            for name in output.preempted_req_ids:
                self._live[name].preemptions += 1
        for new in output.scheduled_new_reqs:
            outcome = self._live[new.req_id]
            if outcome.started_at is None:
                outcome.started_at = now
                outcome.cached_tokens = new.num_computed_tokens
        seconds, starts_at = 0.0, max(now, self._gpu_free_at)
        if tokens:
            self._planned_any = True
            self._naps = 0
            # The last bit of a power differs between machines; a nanosecond is nothing to any cost model.
            seconds = round(self.cost.step_seconds(Batch(*step_features(output))) * self._slowness, 9)
            self.busy_seconds += seconds
            self.kv_seconds += seconds * self._pool.get_usage()
            work = self.host.step_seconds(len(tokens))
            self._host_free_at = max(now, self._host_free_at) + work
            starts_at = max(self._host_free_at, self._gpu_free_at + work * self.host.exposed)
        self._gpu_free_at = starts_at + seconds
        names = list(tokens)
        sampled, places = [SAMPLED] * len(names), dict.fromkeys(tokens, 0)  # all alike, so any place will do
        if self.scheduler._inflight_prefills:  # noqa: SLF001
            requests = self.scheduler.requests
            sampled = [NOTHING_SAMPLED if requests[name].is_prefill_chunk else SAMPLED for name in names]
            places = dict(zip(names, range(len(names)), strict=True))
        result = ModelRunnerOutput(names, places, sampled)
        self._in_flight.append(_Step(output, result, starts_at, self._gpu_free_at))

    def _deliver(self) -> list[Outcome]:
        step = self._in_flight.popleft()
        live, per_output = self._live, self.host.per_output
        now = max(step.ends_at, self._front_end_free_at)
        finished = []
        for outputs in self.scheduler.update_from_output(step.output, step.result).values():
            for item in outputs.outputs:
                if item.stop_reason is not None:
                    self._hand_back(item.request_id)
                    continue
                now += per_output
                outcome = live[item.request_id]
                last = outcome.last_token_at
                if last is None:
                    outcome.first_token_at = now
                else:
                    gap = now - last
                    if gap > outcome.longest_gap:  # noqa: PLR1730  (no call for every token)
                        outcome.longest_gap = gap
                    if gap > outcome.allowed_gap:
                        outcome.late_tokens += 1
                outcome.last_token_at = now
                if item.finish_reason is not None:
                    outcome.finished_at = now
                    finished.append(self._forget(item.request_id))
        self._front_end_free_at = now
        return finished
