"""How much the engines can take, measured: clients that ask again as soon as they are answered."""

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping

from e2e.demo import workload
from e2e.demo.metrics import Sample
from e2e.demo.replay import Call, Progress, replay


async def measure_capacity(url: str, engines: Mapping[str, int]) -> list[Sample]:
    """Keep all engines of the services full for a while; what clients saw, with when they really asked."""
    start = time.monotonic()
    samples: list[Sample] = []
    async with asyncio.TaskGroup() as tasks:
        for service, number in engines.items():
            calls = _calls(service)
            for _ in range(number * workload.CLIENTS):
                tasks.create_task(_ask(url, calls, start, samples))
    return samples


async def _ask(url: str, calls: Iterator[Call], start: float, samples: list[Sample]) -> None:
    while (sent := time.monotonic() - start) < workload.CAPACITY_SECONDS:
        [sample] = await replay(url, [next(calls)], Progress())
        samples.append(dataclasses.replace(sample, sent=sent))


def _calls(service: str) -> Iterator[Call]:
    for number, each in zip(itertools.count(), workload.lengths(service), strict=False):
        yield Call(0.0, service, each.prompt_tokens, each.output_tokens, f"capacity-{service}-{number}")
