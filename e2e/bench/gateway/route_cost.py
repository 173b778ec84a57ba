"""What finding a route costs Envoy, by how many services there are.

One Envoy serves one service, then hundreds, and so on in turns. Requests are for the service whose routes
come last; they name it in their body or in their path.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from e2e.bench.gateway.http1 import Pool, Target, chat_request
from e2e.bench.gateway.load import Sent, Side, closed_loop
from e2e.bench.gateway.settings import BALANCERS, ENGINES, NAMESPACE
from e2e.bench.gateway.testbed import Testbed, TestbedError, start_testbed

SERVICES = (1, 300)
REQUESTS = {
    "": chat_request("chat", "word " * 200),
    "_by_path": chat_request("chat", "word " * 200, path=f"/{NAMESPACE}/chat"),
}
"""By the figures' suffix."""

CONNECTIONS = 8
ROUND_SECONDS = 1.5
READY_SECONDS = 30.0
_ANOTHER = "another-000"  # sorts before `chat`, so that the routes of `chat` come last


async def measure(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Measure Envoy's CPU per request in microseconds; raises TestbedError if a request fails."""
    with tempfile.TemporaryDirectory() as folder, start_testbed(Path(folder)) as under_test:
        addresses = under_test.serve_instantly()
        under_test.start_picker()
        under_test.start_envoy()
        await under_test.ready(ENGINES)
        cpu = {"envoy": lambda: under_test.cpu_seconds("envoy")}
        sides = {(number, key): Side(under_test.gateway, cpu) for number in SERVICES for key in REQUESTS}
        for _ in range(rounds):
            for number in SERVICES:
                await _serve(under_test, number, addresses)
                for key, request in REQUESTS.items():
                    await closed_loop(under_test.gateway, request, CONNECTIONS, 0.3)
                    await sides[number, key].measure(partial(_ask, request))
    figures = {}
    for (number, key), side in sides.items():
        if side.sent.failures:
            raise TestbedError(f"{side.sent.failures} requests failed beside {number} services")
        figures[f"envoy_us_{number}_services{key}"] = round(side.cpu_us("envoy"), 1)
    for name, value in figures.items():
        say(f"  {name:44}{value:10g}")
    return figures


async def _ask(request: bytes, target: Target) -> Sent:
    return await closed_loop(target, request, CONNECTIONS, ROUND_SECONDS)


async def _serve(under_test: Testbed, services: int, addresses: list[str]) -> None:
    """Have so many services served, and wait until Envoy knows."""
    others = {f"another-{number:03}": (BALANCERS[0], ()) for number in range(services - 1)}
    under_test.apply({**others, "chat": (BALANCERS[0], addresses)})
    expected = 503 if others else 404  # there without engines, or not there
    pool = Pool(under_test.gateway)
    deadline = time.monotonic() + READY_SECONDS
    while (await pool.send(chat_request(_ANOTHER, "hello")))[0] != expected:
        if time.monotonic() > deadline:
            raise TestbedError(f"Envoy did not serve {services} services within {READY_SECONDS:g} s")
        await asyncio.sleep(0.1)
    pool.close()
