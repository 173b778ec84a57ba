"""Follows the load stream of every ready engine's sidecar and hands the reports to the picker.

One long-lived `GET /load/stream` per engine, one JSON line per change. Of lines that come at once the last
says it all, since counts are cumulative. A stream that breaks or falls silent is opened anew after a growing,
jittered pause; meanwhile the engine's report ages, and the fleet looks elsewhere.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import fields
from random import Random
from typing import NamedTuple, get_type_hints

import aiohttp
import orjson

from headrace_engine.contracts import ContractError, LoadReport, decode, encode
from headrace_sidecar.gateway import metrics
from headrace_sidecar.gateway.catalog import Catalog, ServiceKey, authority
from headrace_sidecar.gateway.endpoint import STALE_SECONDS

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.1  # seconds
LONGEST_PAUSE = 2.0
MAX_LINE_BYTES = 64 << 10

Observe = Callable[[ServiceKey, str, LoadReport], None]


class Target(NamedTuple):
    """One engine's sidecar."""

    key: ServiceKey
    address: str
    port: int


class LoadClient:
    """Keeps one following task per target; used from one event loop."""

    def __init__(self, session: aiohttp.ClientSession, observe: Observe, random: Random) -> None:
        self._session = session
        self._observe = observe
        self._random = random
        self._tasks: dict[Target, asyncio.Task[None]] = {}

    def set_catalog(self, catalog: Catalog) -> None:
        """Follow exactly the catalog's engines."""
        wanted = set(targets(catalog))
        for gone in self._tasks.keys() - wanted:
            self._tasks.pop(gone).cancel()
        for new in wanted - self._tasks.keys():
            self._tasks[new] = asyncio.create_task(self._follow(new), name=f"load of {new.address}")

    async def _follow(self, target: Target) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                async with aclosing(self._newest(target)) as lines:
                    async for line in lines:
                        self._observe(target.key, target.address, parse(line))
                        pause = FIRST_PAUSE
            except (aiohttp.ClientError, TimeoutError, ContractError, ValueError) as error:
                why = str(error) or type(error).__name__
                log.info("load stream of %s at %s: %s", target.key, target.address, why)
            metrics.LOAD_RECONNECTS.inc()
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _newest(self, target: Target) -> AsyncGenerator[bytes, None]:
        """The last line whenever some have come; raises ContractError for one that does not end."""
        url = f"http://{authority(target.address, target.port)}/load/stream"
        async with self._session.get(url) as response:
            response.raise_for_status()
            rest = b""
            while chunk := await response.content.readany():
                *lines, rest = (rest + chunk).split(b"\n")
                metrics.REPORTS.inc(len(lines))
                if lines:
                    yield lines[-1]
                if len(rest) > MAX_LINE_BYTES:
                    raise ContractError(f"a line of more than {MAX_LINE_BYTES} bytes")


@asynccontextmanager
async def client(observe: Observe, random: Random) -> AsyncIterator[LoadClient]:
    """A load client with its own connections; all end with the context."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=STALE_SECONDS, sock_read=STALE_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)  # one lasting connection per engine, however many there are
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        follower = LoadClient(session, observe, random)
        try:
            yield follower
        finally:
            follower.set_catalog(Catalog())


def targets(catalog: Catalog) -> Iterator[Target]:
    """Every ready engine's sidecar."""
    for key, service in catalog.services.items():
        for address in service.addresses:
            yield Target(key, address, service.config.sidecar_port)


def parse(line: bytes) -> LoadReport:
    """A line of the stream; raises ContractError, or ValueError if it is not JSON.

    A line with just our fields, types and version skips the general decoder, which takes ten times as long:
    there are thousands of lines a second.
    """
    data = orjson.loads(line)
    try:
        values = [data[key] for key in _KEYS]
    except (KeyError, TypeError):
        return decode(LoadReport, data)
    if [type(value) for value in values] == _TYPES and data["schema"] == _SCHEMA:
        return LoadReport(*values)
    return decode(LoadReport, data)


_TYPES = list(get_type_hints(LoadReport).values())
_KEYS = tuple(encode(LoadReport(*(kind() for kind in _TYPES))))
_SCHEMA = next(field.default for field in fields(LoadReport) if field.name == "schema")
