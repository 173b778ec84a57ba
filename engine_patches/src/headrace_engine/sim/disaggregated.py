"""DistServe: one engine prefills, another decodes, and the KV goes from the first to the second.

Two of vLLM's engines, each with the same settings and GPU, so a load on it is a load on two GPUs. What is
modelled:

- The first serves each prompt, order of arrival, up to its first token, and frees its KV then.
- The KV of the prompt crosses one link, one request after another, in its bytes over the link's bytes/s.
- The second holds it from the arrival of its KV on: it computes the second token as it does any other, with
  as many requests at once as it has places and KV for, in order of arrival.

Kinder than life: KV waits nowhere on the way, and a request that the second engine preempts comes back
without a prefill, as if swapped at no cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from headrace_engine.cost.model import Batch, CostModel, Profile
from headrace_engine.sim.engine import SimulatedEngine
from headrace_engine.sim.garbage_collector import no_collector
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.run import Run, serve
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival

WHOLE_PROMPTS = 1 << 20  # tokens of a step: no prompt that is only taken over is ever cut


@dataclass(frozen=True, slots=True)
class TakingOver:
    """A cost model for an engine whose prompts come with their KV: each of them is a decode like others."""

    cost: CostModel

    @property
    def profile(self) -> Profile:
        """The profile of the cost model that this one wraps."""
        return self.cost.profile

    def step_seconds(self, batch: Batch) -> float:
        """Return how many seconds one step takes."""
        return self.cost.step_seconds(_decodes(batch))

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with the context."""
        return self.cost.attention_seconds(_decodes(batch))


@dataclass(frozen=True, slots=True)
class Link:
    """What KV crosses between the two engines."""

    bytes_per_token: float
    bytes_per_second: float


def simulate_disaggregated(
    arrivals: Iterable[Arrival], settings: EngineSettings, cost: CostModel, link: Link
) -> Run:
    """Serve `arrivals`, sorted by time, to the end, on two engines.

    Steps, preemptions and busy seconds are of both together; decisions and the use of KV are the second's.
    Raises ValueError for a request that an engine could never serve.
    """
    pair = _Pair(settings, cost, link)
    with no_collector():
        serve(pair, arrivals)
    return pair.run()


class _Pair:
    def __init__(self, settings: EngineSettings, cost: CostModel, link: Link) -> None:
        taking = replace(settings, max_num_batched_tokens=WHOLE_PROMPTS, prefix_caching=False)
        self.first = SimulatedEngine(settings, cost)
        self.second = SimulatedEngine(taking, TakingOver(cost), number=1)
        self.outcomes: list[Outcome] = []
        self._link = link
        self._link_free_at = 0.0
        self._whose: dict[int, Outcome] = {}  # by identity of what the engine under way calls it
        self._sent: deque[tuple[float, Outcome]] = deque()  # with when its KV has crossed

    @property
    def next_event_at(self) -> float:
        return min(self._lands_at, self.first.next_event_at, self.second.next_event_at)

    @property
    def _lands_at(self) -> float:
        return self._sent[0][0] if self._sent else inf

    def add(self, arrival: Arrival, now: float) -> None:
        outcome = Outcome(arrival)
        self.outcomes.append(outcome)
        self._whose[id(self.first.add(replace(arrival, output_tokens=1), now))] = outcome

    def advance(self) -> None:
        now = self.next_event_at
        if now == self._lands_at:
            outcome = self._sent.popleft()[1]
            prompt, output = outcome.arrival.prompt_tokens, outcome.arrival.output_tokens
            rest = replace(outcome.arrival, prompt_tokens=prompt + 1, output_tokens=output - 1)
            self._whose[id(self.second.add(rest, now))] = outcome
        elif now == self.first.next_event_at:
            for part in self.first.advance():
                self._prefilled(part, self._whose.pop(id(part)))
        else:
            for part in self.second.advance():
                _decoded(part, self._whose.pop(id(part)))

    def _prefilled(self, part: Outcome, outcome: Outcome) -> None:
        now = part.finished_at or 0.0
        outcome.started_at, outcome.cached_tokens = part.started_at, part.cached_tokens
        outcome.first_token_at = outcome.last_token_at = now
        outcome.preemptions = part.preemptions
        if outcome.arrival.output_tokens == 1:
            outcome.finished_at = now
            return
        moved = outcome.arrival.prompt_tokens * self._link.bytes_per_token
        self._link_free_at = max(self._link_free_at, now) + moved / self._link.bytes_per_second
        self._sent.append((self._link_free_at, outcome))

    def run(self) -> Run:
        first, second = self.first, self.second
        return Run(
            self.outcomes,
            first.steps + second.steps,
            first.preemptions + second.preemptions,
            first.busy_seconds + second.busy_seconds,
            max((outcome.finished_at or 0.0 for outcome in self.outcomes), default=0.0),
            second.kv_seconds / second.busy_seconds if second.busy_seconds else 0.0,
            second.decisions.hexdigest(),
        )


def _decoded(part: Outcome, outcome: Outcome) -> None:
    gap = (part.first_token_at or 0.0) - (outcome.first_token_at or 0.0)
    outcome.engine = part.engine
    outcome.longest_gap = max(part.longest_gap, gap)
    outcome.late_tokens = part.late_tokens + (gap > outcome.allowed_gap)
    outcome.last_token_at, outcome.finished_at = part.last_token_at, part.finished_at
    outcome.preemptions += part.preemptions


def _decodes(batch: Batch) -> Batch:
    """Turn prompts of n tokens with their KV into decodes with a context of n - 1."""
    return Batch(
        decodes=batch.decodes + batch.prefills,
        decode_context=batch.decode_context + batch.prefill_tokens - batch.prefills,
    )
