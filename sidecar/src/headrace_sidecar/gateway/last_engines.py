"""A service of which no engine is ready keeps those that were and still answer.

Kubernetes calls a pod unready also when only its sidecar restarts, and every pod of a node that it has lost
sight of. The engines serve on meanwhile, and to drop them all would refuse every request. As long as one
engine is ready, what Kubernetes says is followed. A pod that ends, or that was never ready, is never kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from headrace_engine.contracts.fetch import FetchError, fetch
from headrace_sidecar.gateway.catalog import Catalog, ServiceKey

HEALTH_PATH = "/health"  # vLLM's, which the readiness probe asks too
ASK_EVERY = 1.0  # seconds
CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 5.0

Publish = Callable[[Catalog], None]
Source = Callable[[Publish], Coroutine[Any, Any, None]]
Answers = Callable[[str, int], Awaitable[bool]]


class LastEngines:
    """Stands between a source of catalogs and `publish`; `answers` asks the engine at an address and port."""

    def __init__(self, publish: Publish, answers: Answers) -> None:
        self._publish, self._answers = publish, answers
        self._given = Catalog()
        self._served: dict[ServiceKey, frozenset[str]] = {}  # were ready at some time, and are still there
        self._kept: dict[ServiceKey, frozenset[str]] = {}
        self._doubt = asyncio.Event()  # some are kept

    def take(self, catalog: Catalog) -> None:
        """A catalog from the source; engines are kept until they turn out not to answer."""
        self._given = catalog
        served, kept = {}, {}
        for key, service in catalog.services.items():
            ready, unready = frozenset(service.addresses), frozenset(service.unready)
            served[key] = ready | (self._served.get(key, frozenset()) & unready)
            if not ready:  # who did not answer once is not asked again
                kept[key] = self._kept.get(key, served[key]) & unready
        self._served, self._kept = served, kept
        self._show()
        if any(kept.values()):
            self._doubt.set()

    async def check(self) -> None:
        """Ask those that are kept, for ever; who does not answer is dropped until it is ready again."""
        while True:
            await self._doubt.wait()
            asked = [(key, address) for key, kept in self._kept.items() for address in kept]
            if not asked:
                self._doubt.clear()
                continue
            ports = [self._given.services[key].config.port for key, _ in asked]
            answers = await asyncio.gather(
                *(self._answers(address, port) for (_, address), port in zip(asked, ports, strict=True))
            )
            silent = {pair for pair, answer in zip(asked, answers, strict=True) if not answer}
            if silent:
                self._kept = {
                    key: frozenset(address for address in kept if (key, address) not in silent)
                    for key, kept in self._kept.items()
                }
                self._show()
            await asyncio.sleep(ASK_EVERY)

    def _show(self) -> None:
        services = self._given.services.values()
        self._publish(
            Catalog.of(
                service.with_addresses(self._kept.get(service.key, service.addresses)) for service in services
            )
        )


async def keep(source: Source, publish: Publish) -> None:
    """Run the source, with the last engines kept."""
    async with asyncio.TaskGroup() as group:
        last = LastEngines(publish, answers)
        group.create_task(last.check())
        await source(last.take)


async def answers(address: str, port: int) -> bool:
    """Whether an engine there says that it is healthy, or takes a connection and is too busy to say."""
    try:
        await fetch(address, port, HEALTH_PATH, seconds=ANSWER_SECONDS, connect_seconds=CONNECT_SECONDS)
    except FetchError:
        return False
    except TimeoutError:
        return True
    return True
