"""How long an engine's steps take, and its requests alone: looked up once for each size."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_engine.cost.host import server_host_time
from headrace_engine.cost.model import Batch, CostModel, chunk_work, unloaded_seconds
from headrace_operator.placement.problem import Request

CONTEXT_STRIDE = 256  # tokens of mean context that count as the same


class StepTimes:
    """The times of one service's steps on one size of engine, in seconds, with what the host exposes of its
    own (as in `SimulatedEngine`, asynchronous).
    """

    def __init__(self, cost: CostModel, step_tokens: int) -> None:
        self._cost = cost
        self.step_tokens = step_tokens
        self._host = server_host_time(cost.profile.tensor_parallel)
        self._decodes: dict[tuple[int, int], float] = {}
        self.intake = self._host.intake

    def decode(self, requests: int, context: int) -> float:
        """Return the seconds of a step that decodes `requests`, of `context` tokens altogether."""
        key = (requests, context // requests // CONTEXT_STRIDE)
        found = self._decodes.get(key)
        if found is None:
            mean = (key[1] + 0.5) * CONTEXT_STRIDE
            batch = Batch(decodes=requests, decode_context=int(mean * requests))
            found = self._decodes[key] = self._step(batch)
        return found

    def prefill(self, prompts: Sequence[int], decodes: int, context: int) -> tuple[float, int]:
        """Return the seconds and the number of the steps that compute `prompts` (tokens each) to their end.

        Each step decodes `decodes` besides, of `context` tokens altogether. Several prompts fit into one.
        """
        tokens = sum(prompts)
        budget = max(self.step_tokens - decodes, 1)
        if tokens <= budget:
            work = sum(chunk_work(each, 0) for each in prompts)
            return self._step(Batch(tokens, work, decodes, context, len(prompts))), 1
        seconds = 0.0
        chunks = range(0, tokens, budget)
        for start in chunks:
            chunk = min(budget, tokens - start)
            seconds += self._step(Batch(chunk, chunk_work(chunk, start), decodes, context, 1))
        return seconds, len(chunks)

    def alone(self, requests: Sequence[Request]) -> list[float]:
        """Return the seconds that each request takes on an idle engine, by the GPU alone."""
        return [
            unloaded_seconds(self._cost, each.prompt_tokens, each.output_tokens, self.step_tokens)
            for each in requests
        ]

    def _step(self, batch: Batch) -> float:
        work = self._host.step_seconds(batch.decodes + batch.prefills)
        return max(self._cost.step_seconds(batch) + work * self._host.exposed, work)
