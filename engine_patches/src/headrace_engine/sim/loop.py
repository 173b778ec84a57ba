"""A bare engine loop for tests and for measuring the adapter: vLLM requests in, tokens out, step by step.

`SimulatedEngine` is the one with vLLM's timing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.outputs import ModelRunnerOutput

from headrace_engine.sim.clock import VirtualClock

StepCost = Callable[[Any], float]
"""Seconds of a step, from its `SchedulerOutput`."""

ANY_TOKEN = 7


def flat_cost(output: Any) -> float:
    """Make a plausible cost of a step: a fixed part, and one for each token."""
    return 0.005 + 0.00005 * float(output.total_num_scheduled_tokens)


@dataclass(slots=True)
class VirtualEngine:
    """One engine; `finished` maps request ids to the virtual time of their last token."""

    scheduler: Any
    clock: VirtualClock
    cost: StepCost = flat_cost
    depth: int = 1  # steps in flight
    steps: int = 0
    preemptions: int = 0
    finished: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    before_step: Callable[[], None] = lambda: None
    _in_flight: deque[tuple[Any, dict[str, bool]]] = field(default_factory=deque)

    def run(self, requests: Iterable[Any]) -> None:
        """Serve `requests`, sorted by arrival, until all are done."""
        arriving = deque(requests)
        while arriving or self._in_flight or self.scheduler.has_requests():
            while arriving and arriving[0].arrival_time <= self.clock.now:
                self.scheduler.add_request(arriving.popleft())
            if self._in_flight or self.scheduler.has_requests():
                self.turn()
            else:
                self.clock.now = arriving[0].arrival_time

    def turn(self) -> None:
        """Plan one step; take in the oldest in flight unless there is room for another."""
        if self.scheduler.has_requests():
            self.before_step()
            output = self.scheduler.schedule()
            self.steps += 1
            self.preemptions += len(output.preempted_req_ids or ())
            requests = self.scheduler.requests
            sampled = {i: not requests[i].is_prefill_chunk for i in output.num_scheduled_tokens}
            self._in_flight.append((output, sampled))
            if sampled or self.depth == 1:  # vLLM does it while the device computes
                self.scheduler.get_grammar_bitmask(output)
            if sampled and len(self._in_flight) < self.depth:
                return
        self._deliver()

    def _deliver(self) -> None:
        output, sampled = self._in_flight.popleft()
        self.clock.now += self.cost(output)
        ids = list(sampled)
        results = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
                sampled_token_ids=[[ANY_TOKEN] if sampled[request_id] else [] for request_id in ids],
            ),
        )
        for result in results.values():
            for item in result.outputs:
                self.tokens.setdefault(item.request_id, []).extend(item.new_token_ids)
                if item.finish_reason is not None:
                    self.finished[item.request_id] = self.clock.now
