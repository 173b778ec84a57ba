"""What the operator costs: `python -m e2e.bench.operator_scale`, ten minutes; by `--services` one half of it.

On a real API server, with pods that the benchmark plays (`operator/testbed.py`):

- from nothing to 300, and to 1,000, LLMServices that are ready and run their policy;
- with 300: writes while nothing changes, also of an operator that starts there;
- with 1,000: from a change of a spec to the changed Deployment, at 10 changes a second; then 20,000 events,
  nine in ten of them changes of pods, and what they leave in memory; last, an operator that starts there.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from statistics import fmean

import aiohttp

from e2e.bench.operator.api import CORE, SERVICES, Api, connect
from e2e.bench.operator.testbed import Operator, Player, holds, service
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.cluster.control_plane import ControlPlane

COMMAND = "python -m e2e.bench.operator_scale"
FEW, MANY = 300, 1000
QUIET_SECONDS = 60.0  # in which a resync comes
CHANGES = 300
CHANGES_PER_SECOND = 10.0
EVENTS = 20_000
AT_ONCE = 16  # requests of the benchmark's own
PODS_PER_CHANGE = 9
_TIMEOUT = 900.0  # seconds


async def few(size: int, quiet: float) -> dict[str, float]:
    """Measure how fast a few services settle, and what the operator writes after that."""
    async with _start_testbed(size) as testbed:
        async with Operator(testbed.plane, testbed.http) as operator:
            figures = {f"reconcile_{size}_seconds": await _reconcile(testbed.api, size)}
            _say(figures)
            await _settle(operator)
            before = await operator.writes()
            await asyncio.sleep(quiet)
            figures["fixpoint_writes"] = await operator.writes() - before
        async with Operator(testbed.plane, testbed.http) as operator:
            await _settle(operator, at_least=size)
            await asyncio.sleep(quiet)
            figures["fixpoint_writes_of_a_fresh_operator"] = await operator.writes()
    return figures


async def many(size: int, changes: int, events: int) -> dict[str, float]:
    """Measure an operator under load."""
    async with _start_testbed(size) as testbed:
        async with Operator(testbed.plane, testbed.http) as operator:
            figures = {f"reconcile_{size}_seconds": await _reconcile(testbed.api, size)}
            _say(figures)
            await _settle(operator)
            delays = sorted(await _changes(testbed, size, changes))
            figures["event_to_apply_p50_seconds"] = delays[len(delays) // 2]
            figures["event_to_apply_p99_seconds"] = delays[int(len(delays) * 0.99)]
            _say(figures)
            figures |= await _soak(testbed, operator, size, events)
            figures["rss_mib"] = operator.memory("VmHWM")
        async with Operator(testbed.plane, testbed.http) as operator:
            await _settle(operator, at_least=size)
            figures["rss_mib_of_a_fresh_operator"] = operator.memory("VmHWM")
    return figures


@dataclass(frozen=True, slots=True)
class Testbed:
    """What the operator stands in."""

    plane: ControlPlane
    api: Api
    http: aiohttp.ClientSession
    player: Player


@asynccontextmanager
async def _start_testbed(size: int) -> AsyncIterator[Testbed]:
    print(f"{size} services", flush=True)
    with ControlPlane() as plane:
        async with connect(plane) as api, aiohttp.ClientSession() as http:
            await api.install()
            player = Player(api)
            async with asyncio.TaskGroup() as tasks:  # a player that fails ends the benchmark
                playing = tasks.create_task(player.run())
                yield Testbed(plane, api, http, player)
                playing.cancel()


async def _reconcile(api: Api, size: int) -> float:
    """Return the seconds until so many new services are ready and run their policy."""
    began = time.monotonic()
    waiting = {f"s{number}" for number in range(size)}
    async with asyncio.timeout(_TIMEOUT), asyncio.TaskGroup() as tasks:
        create = _each(range(size), lambda number: api.create(SERVICES, "llmservices", service(number)))
        tasks.create_task(create)
        async with aclosing(api.watch(SERVICES, "llmservices")) as events:
            async for _, body in events:
                if holds(body, "Ready") and holds(body, "PolicyApplied"):
                    waiting.discard(body["metadata"]["name"])
                if not waiting:
                    break
    return time.monotonic() - began


async def _settle(operator: Operator, seconds: float = 5.0, at_least: int = 0) -> None:
    """Wait until the operator has reconciled so often, and then nothing for so long."""
    before, since = -1.0, time.monotonic()
    async with asyncio.timeout(_TIMEOUT):
        while time.monotonic() - since < seconds or before < at_least:
            done = await operator.total("headrace_operator_reconcile_seconds_count")
            if done != before:
                before, since = done, time.monotonic()
            await asyncio.sleep(1.0)


async def _changes(testbed: Testbed, size: int, count: int) -> list[float]:
    """Return the seconds from each change of a spec to its Deployment, as a watch tells of it."""

    async def one(number: int) -> float:
        await asyncio.sleep(number / CHANGES_PER_SECOND)
        name, surge = f"s{number * 7 % size}", 1 + number % 5
        began = time.monotonic()
        await testbed.api.merge(SERVICES, "llmservices", name, {"spec": {"disruption": {"maxSurge": surge}}})
        async with testbed.player.changed:
            await testbed.player.changed.wait_for(
                lambda: testbed.player.seen[name]["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == surge
            )
        return time.monotonic() - began

    return list(await asyncio.gather(*map(one, range(count))))


async def _soak(testbed: Testbed, operator: Operator, size: int, events: int) -> dict[str, float]:
    """Measure memory over many events: `soak_growth_mib` between means of the second and last quarter."""
    pods, api = itertools.cycle(testbed.player.pods()), testbed.api
    memory: list[float] = []

    async def one(number: int) -> None:
        if number % (PODS_PER_CHANGE + 1) == 0:
            patch = {"spec": {"disruption": {"maxSurge": 6 + number // size % 90}}}
            await api.merge(SERVICES, "llmservices", f"s{number % size}", patch)
        else:
            note = {"metadata": {"annotations": {"example.com/n": str(number)}}}
            await api.merge(CORE, "pods", next(pods), note)
        if number % (events // 200 or 1) == 0:
            memory.append(operator.memory())

    began = time.monotonic()
    await _each(range(events), one)
    seconds = time.monotonic() - began
    await _settle(operator)
    quarter = len(memory) // 4
    growth = fmean(memory[-quarter:]) - fmean(memory[quarter : 2 * quarter])
    return {
        "soak_events": events,
        "soak_events_per_second": events / seconds,
        "soak_growth_mib": growth,
    }


async def _each(numbers: Iterable[int], do: Callable[[int], Awaitable[object]]) -> None:
    """Run a few at a time."""
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            await do(number)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def _say(figures: dict[str, float]) -> None:
    print(", ".join(f"{name} {value:.3g}" for name, value in figures.items()), flush=True)


def main() -> None:
    """Measure and write the figures; those of the half that was not asked for stay."""
    arguments = describe(__doc__)
    arguments.add_argument("--quick", action="store_true", help="a tiny version; keeps no result")
    arguments.add_argument("--services", type=int, choices=(FEW, MANY), help="that half only")
    chosen = arguments.parse_args()
    quick, half = chosen.quick, chosen.services
    figures: dict[str, float] = {}
    if half in {None, FEW}:
        figures |= asyncio.run(few(20, 5.0) if quick else few(FEW, QUIET_SECONDS))
    if half in {None, MANY}:
        figures |= asyncio.run(many(40, 20, 500) if quick else many(MANY, CHANGES, EVENTS))
    _say(figures)
    if not quick:
        rounded = {name: round(value, 3) for name, value in figures.items()}
        print(results.write("operator", COMMAND, rounded, keep_other_figures=half is not None))


if __name__ == "__main__":
    main()
