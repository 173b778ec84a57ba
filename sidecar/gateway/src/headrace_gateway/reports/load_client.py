"""Follows the load stream of every ready engine's sidecar and hands the reports to the picker.

One long-lived `GET /load/stream` per engine, one JSON line per change. Of lines that come at once the last
says it all, since counts are cumulative. A stream that breaks or falls silent is opened anew after a growing,
jittered pause; meanwhile the engine's report ages, and the fleet looks elsewhere. An engine that reports what
no engine can be is not believed at all.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields
from operator import attrgetter, itemgetter
from random import Random
from typing import NamedTuple, get_type_hints

import orjson

from headrace_engine.contracts import ContractError, LoadReport, decode, encode
from headrace_gateway import metrics
from headrace_gateway.balancers.endpoint import STALE_SECONDS
from headrace_gateway.catalog import Catalog, ServiceKey
from headrace_gateway.reports.load_stream import Sockets, StreamError, read

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.1  # seconds
LONGEST_PAUSE = 2.0
LASTING_SECONDS = 10.0  # a stream that ends sooner was none, and the next is waited for longer
MOST = 1e15  # of anything that a report counts
LEAST = 1e-9  # of a rate or a mean that is not 0
MOST_CHARACTERS = 64  # of a boot's name

Observe = Callable[[ServiceKey, str, LoadReport], None]


class Target(NamedTuple):
    """Address of one engine's sidecar, and the service that it belongs to."""

    key: ServiceKey
    address: str
    port: int


class LoadClient:
    """Keeps one following task per target; used from one event loop."""

    def __init__(self, observe: Observe, random: Random) -> None:
        self._observe = observe
        self._random = random
        self._tasks: dict[Target, asyncio.Task[None]] = {}
        self._sockets = Sockets()

    def set_catalog(self, catalog: Catalog) -> None:
        """Follow exactly the catalog's engines."""
        wanted = set(list_targets(catalog))
        for gone in self._tasks.keys() - wanted:
            self._tasks.pop(gone).cancel()
        for new in wanted - self._tasks.keys():
            self._tasks[new] = asyncio.create_task(self._follow(new), name=f"load of {new.address}")

    async def stop(self) -> None:
        """End all load streams, and wait for their ends."""
        tasks = list(self._tasks.values())
        self.set_catalog(Catalog())
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sockets.close()

    async def _follow(self, target: Target) -> None:
        pause = FIRST_PAUSE
        clock = asyncio.get_running_loop().time

        def on_line(line: bytes) -> None:
            self._observe(target.key, target.address, parse_report(line))

        while True:
            began = clock()
            try:
                await read(
                    target.address, target.port, on_line, metrics.REPORTS.inc, STALE_SECONDS, self._sockets
                )
            except (OSError, StreamError, ContractError, ValueError) as error:
                why = str(error) or type(error).__name__
                log.info("load stream of %s at %s: %s", target.key, target.address, why)
            metrics.LOAD_RECONNECTS.inc()
            if clock() - began >= LASTING_SECONDS:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)


@asynccontextmanager
async def client(observe: Observe, random: Random) -> AsyncIterator[LoadClient]:
    """Make a load client; its streams end with the context."""
    follower = LoadClient(observe, random)
    try:
        yield follower
    finally:
        await follower.stop()


def list_targets(catalog: Catalog) -> Iterator[Target]:
    """Yield every ready engine's sidecar."""
    for key, service in catalog.services.items():
        for address in service.addresses:
            yield Target(key, address, service.config.sidecar_port)


def parse_report(line: bytes) -> LoadReport:
    """Parse a line of the stream; raises ContractError or ValueError if no engine could have sent it.

    A line with just our fields, types and version skips the general decoder, which takes ten times as long:
    there are thousands of lines a second.
    """
    data = orjson.loads(line)
    try:
        values = _values(data)
    except (KeyError, TypeError):
        return is_possible(decode(LoadReport, data))
    if tuple(map(type, values)) == _TYPES and data["schema"] == _SCHEMA:
        return is_possible(LoadReport(*values))
    return is_possible(decode(LoadReport, data))


def is_possible(report: LoadReport) -> LoadReport:
    """Return the report if its numbers could be an engine's: sums and quotients of them are finite then."""
    numbers = _numbers(report)
    if not (min(numbers) >= 0 and max(numbers) <= MOST and len(report.boot) <= MOST_CHARACTERS):
        raise ValueError("a number below 0 or beyond reason")
    if any(0.0 < rate < LEAST for rate in _rates(report)):
        raise ValueError("a rate so small that it is none")
    return report


_TYPES = tuple(get_type_hints(LoadReport).values())
_values = itemgetter(*encode(LoadReport(*(kind() for kind in _TYPES))))
_numbers = attrgetter(*(each.name for each in fields(LoadReport) if each.name not in {"boot", "serving"}))
_rates = attrgetter("prefill_tokens_per_second", "step_seconds", "mean_prompt_tokens", "mean_output_tokens")
_SCHEMA = next(field.default for field in fields(LoadReport) if field.name == "schema")
