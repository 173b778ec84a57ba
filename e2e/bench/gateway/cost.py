"""The gateway's own cost, figure by figure; see `load` for how it is measured."""

import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random

from e2e.bench.gateway.http1 import Target, chat_request
from e2e.bench.gateway.load import Sent, Side, closed_loop, steady_rate, take_turns
from e2e.bench.gateway.settings import ENGINES
from e2e.bench.gateway.testbed import Testbed, TestbedError, start_testbed

Say = Callable[[str], None]

ROUND_SECONDS = 1.2
CONNECTIONS = 32
STEADY = 200.0  # requests per second
BODIES = {"": 1_000, "_16k": 16_000}  # bytes of prompt by the figures' suffix


async def measure(rounds: int, say: Say) -> dict[str, float]:
    """Measure all figures of the gateway's cost."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, start_testbed(Path(folder)) as under_test:
        await _start(under_test)
        for suffix, size in BODIES.items():
            request = chat_request("chat", "word " * (size // 5))
            figures |= await _figures(under_test, request, suffix, rounds, say)
    return figures


async def _start(under_test: Testbed) -> None:
    addresses = under_test.serve_instantly()
    under_test.start_picker()
    under_test.start_envoy()
    under_test.start_plain(addresses)
    await under_test.ready(ENGINES)


async def _figures(
    under_test: Testbed, request: bytes, suffix: str, rounds: int, say: Say
) -> dict[str, float]:
    warm_up = partial(closed_loop, request=request, connections=CONNECTIONS, seconds=0.5)
    await take_turns(_sides(under_test), 1, warm_up)
    one = partial(closed_loop, request=request, connections=1, seconds=ROUND_SECONDS)
    steady = partial(steady_rate, request=request, rate=STEADY, seconds=ROUND_SECONDS, random=Random(1))
    most = partial(closed_loop, request=request, connections=CONNECTIONS, seconds=ROUND_SECONDS)
    plain, gateway = await _compare(under_test, one, rounds)
    figures = {
        f"added_p50_ms{suffix}": gateway.sent.milliseconds(50) - plain.sent.milliseconds(50),
        f"added_p99_ms{suffix}": gateway.sent.milliseconds(99) - plain.sent.milliseconds(99),
    }
    plain, gateway = await _compare(under_test, steady, rounds)
    figures |= {
        f"steady_added_p50_ms{suffix}": gateway.sent.milliseconds(50) - plain.sent.milliseconds(50),
        f"steady_added_p99_ms{suffix}": gateway.sent.milliseconds(99) - plain.sent.milliseconds(99),
    }
    plain, gateway = await _compare(under_test, most, rounds)
    figures |= {
        f"requests_per_second{suffix}": gateway.median_rate(),
        f"plain_envoy_requests_per_second{suffix}": plain.median_rate(),
        f"picker_cpu_us_per_request{suffix}": gateway.cpu_us("picker"),
        f"envoy_cpu_us_per_request{suffix}": gateway.cpu_us("envoy"),
        f"plain_envoy_cpu_us_per_request{suffix}": plain.cpu_us("envoy"),
    }
    figures = {key: round(value, 3 if key.endswith("ms" + suffix) else 0) for key, value in figures.items()}
    for key, value in figures.items():
        say(f"  {key:44}{value:10g}")
    return figures


async def _compare(
    under_test: Testbed, run: Callable[[Target], Awaitable[Sent]], rounds: int
) -> tuple[Side, Side]:
    """Measure plain Envoy and the gateway; TestbedError if a request failed or went by without the picker."""
    picks = under_test.picks()
    plain, gateway = sides = _sides(under_test)
    await take_turns(sides, rounds, run)
    for name, side in (("plain Envoy", plain), ("the gateway", gateway)):
        if side.sent.failures:
            raise TestbedError(f"{side.sent.failures} of {side.sent.requests} requests to {name} failed")
    under_test.check_picks(picks, gateway.sent.requests)
    return plain, gateway


def _sides(under_test: Testbed) -> tuple[Side, Side]:
    plain_cpu: dict[str, Callable[[], float]] = {"envoy": partial(under_test.cpu_seconds, "plain")}
    cpu: dict[str, Callable[[], float]] = {
        name: partial(under_test.cpu_seconds, name) for name in ("envoy", "picker")
    }
    return Side(under_test.plain, plain_cpu), Side(under_test.gateway, cpu)
