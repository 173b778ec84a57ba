"""Clients of an engine: open loop by a list of arrivals, closed loop to see what it can do.

An answer ends by its end token, which is forbidden before the recorded length and forced there; so the engine
cannot know how long it will be, as it cannot in production. No two prompts are alike.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from e2e.bench.live.servers import NAME
from e2e.demo import replay
from e2e.demo.metrics import Sample
from e2e.demo.replay import Call, Length, Progress
from headrace_engine.sim.workloads.arrival import Arrival

FORCED = 100  # added to the end token's logit, far above any other


class ClientError(RuntimeError):
    """Requests failed; the message has the first reason."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who sends requests to an engine whose model ends its answers with `end_token`."""

    url: str
    end_token: int
    max_model_len: int
    deadline: float = replay.DEADLINE  # seconds until a request is given up

    def length(self, call: Call) -> dict[str, Any]:
        """Make an answer as long as recorded without telling how long that is."""
        return {
            "max_tokens": self.max_model_len - call.prompt_tokens,
            "min_tokens": call.output_tokens - 1,
            "logit_bias": {str(self.end_token): FORCED},
        }

    async def open_loop(self, arrivals: Sequence[Arrival], label: str) -> list[Sample]:
        """Send each request at its time; a sample for each, in their order. Raises ClientError."""
        calls = [_call(each, f"{label} {number}") for number, each in enumerate(arrivals)]
        return _checked(
            await replay.replay(self.url, calls, Progress(), self._length(), deadline=self.deadline)
        )

    async def closed_loop(
        self, requests: Sequence[Arrival], clients: int, seconds: float, label: str
    ) -> list[float]:
        """Keep so many clients asking, each again when it is answered; when each answer was whole.

        Times are seconds from the start. Raises ClientError.
        """
        began, source = time.monotonic(), enumerate(itertools.cycle(requests))
        finished: list[float] = []

        async def work(source: Iterator[tuple[int, Arrival]]) -> None:
            while time.monotonic() - began < seconds:
                number, request = next(source)
                call = _call(replace(request, at=0.0), f"{label} {number}")
                _checked(await replay.replay(self.url, [call], Progress(), self._length()))
                finished.append(time.monotonic() - began)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(clients):
                tasks.create_task(work(source))
        return sorted(finished)

    def _length(self) -> Length:
        return self.length


def _call(request: Arrival, seed: str) -> Call:
    return Call(request.at, NAME, request.prompt_tokens, request.output_tokens, seed)


def _checked(samples: list[Sample]) -> list[Sample]:
    wrong = [sample.error for sample in samples if sample.error]
    if wrong:
        raise ClientError(f"{len(wrong)} of {len(samples)} requests failed, the first: {wrong[0]}")
    return samples
