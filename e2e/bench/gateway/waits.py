"""How long requests wait in the engines' queues, by balancer: through the real Envoy and picker.

The engines are stand-ins (`stand_in`), the requests real ones with texts of the Azure lengths. Four
services with as many engines each get the very same requests at the very same times, each with its own
balancer, so that all meet the same machine; in every run the balancers move on to the next service by a
change of the services' configuration. A wait is what the engine says it was: from the request's arrival to
the start of its prefill.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e.bench.gateway.http1 import Pool, Target, completion_request
from e2e.bench.gateway.settings import BALANCERS, ENGINES, arrivals, texts
from e2e.bench.gateway.testbed import BusyError, Testbed, TestbedError, engine_addresses, start_testbed
from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate
from headrace_engine.contracts.gateway_config import Balancer

Say = Callable[[str], None]

LOADS = {"07": 0.7, "09": 0.9}
SERVICES = [f"fleet-{number}" for number in range(len(BALANCERS))]
BACKLOG = 250  # requests given to each engine at once to measure what it can do
WARM_UP = 0.1  # share of a run's requests that find too short a queue
SETTLE = 1.0  # seconds for a changed balancer to be in force, and for queues to be known as empty
TRIES = 3
LATEST = 0.01  # seconds that the stand-ins' steps may end late on average
KEYS: Mapping[Balancer, str] = {
    "LeastRequest": "least_request",
    "PowerOfTwo": "power_of_two",
    "RoundRobin": "round_robin",
}


@dataclass(slots=True)
class Waits:
    """Seconds that requests waited at one load: by balancer, a list per run."""

    runs: dict[Balancer, list[list[float]]] = field(default_factory=lambda: {name: [] for name in BALANCERS})

    def means(self, balancer: Balancer) -> list[float]:
        """Return the mean wait of each run."""
        return [statistics.fmean(run) for run in self.runs[balancer]]

    def mean(self, balancer: Balancer) -> float:
        """Return the mean wait over all runs."""
        return statistics.fmean(wait for run in self.runs[balancer] for wait in run)

    def ratio(self, other: Balancer) -> Estimate:
        """Return SAL's mean wait divided by the other's, with the interval over runs."""
        return intervals.ratio(self.means("SAL"), self.means(other))


async def measure(runs: int, seconds: float, say: Say) -> tuple[float, dict[str, Waits]]:
    """Measure the requests per second that an engine can do, and the waits by load."""
    addresses = engine_addresses(100, ENGINES * len(SERVICES))
    groups = [addresses[start : start + ENGINES] for start in range(0, len(addresses), ENGINES)]
    with tempfile.TemporaryDirectory() as folder, start_testbed(Path(folder)) as under_test:
        under_test.start_engines("queues", addresses)
        under_test.apply(_services(groups, 0))
        under_test.start_picker()
        under_test.start_envoy()
        await under_test.ready(len(addresses))
        rate = await _capacity(under_test, addresses)
        say(f"  an engine can do {rate:.2f} requests/s")
        waits = {name: Waits() for name in LOADS}
        for run in range(runs):
            under_test.apply(_services(groups, run))
            for name, load in LOADS.items():
                await asyncio.sleep(SETTLE)
                found = await _until_quiet(under_test, load * rate * ENGINES, seconds, run, say)
                for number, service in enumerate(SERVICES):
                    waits[name].runs[_balancer(number, run)].append(found[service])
                means = (f"{b} {1000 * statistics.fmean(waits[name].runs[b][-1]):.1f}" for b in BALANCERS)
                say(f"  run {run + 1}, load {load}: mean wait in ms: {', '.join(means)}")
    return rate, waits


def figures(waits: Mapping[str, Waits]) -> dict[str, float]:
    """Return the ratios, the upper ends of their 95 % intervals, and the mean waits behind them."""
    found: dict[str, float] = {}
    for name, each in waits.items():
        for balancer, key in KEYS.items():
            ratio = each.ratio(balancer)
            found[f"wait_ratio_{key}_{name}"] = round(ratio.value, 3)
            found[f"wait_ratio_upper_{key}_{name}"] = round(ratio.high, 3)
        for balancer in BALANCERS:
            found[f"wait_mean_ms_{KEYS.get(balancer, 'sal')}_{name}"] = round(1000 * each.mean(balancer), 1)
    return found


def _balancer(service: int, run: int) -> Balancer:
    return BALANCERS[(service + run) % len(BALANCERS)]


def _services(groups: Sequence[Sequence[str]], run: int) -> dict[str, tuple[Balancer, Sequence[str]]]:
    return {service: (_balancer(number, run), groups[number]) for number, service in enumerate(SERVICES)}


async def _until_quiet(
    under_test: Testbed, rate: float, seconds: float, run: int, say: Say
) -> dict[str, list[float]]:
    """Repeat a run until other work did not spoil it; raises BusyError after some tries."""
    for _ in range(TRIES - 1):
        try:
            return await _run(under_test, rate, seconds, run)
        except BusyError as error:
            say(f"  once more: {error}")
            await asyncio.sleep(SETTLE)
    return await _run(under_test, rate, seconds, run)


async def _run(under_test: Testbed, rate: float, seconds: float, run: int) -> dict[str, list[float]]:
    """Run once: every service gets the same requests; returns the waits after the warm-up by service."""
    requests = arrivals(rate, seconds, run)
    bodies = [
        [completion_request(service, text, request.output_tokens) for service in SERVICES]
        for request, text in zip(requests, texts(requests, run), strict=True)
    ]
    pool = Pool(under_test.gateway)
    found: dict[str, list[float]] = {service: [0.0] * len(requests) for service in SERVICES}

    late: list[float] = []

    async def ask(service: str, number: int, body: bytes) -> None:
        told = await _answer(pool, body)
        found[service][number] = told["wait"]
        late.append(told["late"])

    picks = under_test.picks()
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number, request in enumerate(requests):
            await asyncio.sleep(max(0.0, started + request.at - time.monotonic()))
            for turn in range(len(SERVICES)):
                place = (number + turn) % len(SERVICES)
                group.create_task(ask(SERVICES[place], number, bodies[number][place]))
    pool.close()
    under_test.check_picks(picks, len(requests) * len(SERVICES))
    if statistics.fmean(late) > LATEST:
        raise BusyError(f"the engines' steps ended {1000 * statistics.fmean(late):.0f} ms late on average")
    return {service: waits[int(WARM_UP * len(waits)) :] for service, waits in found.items()}


async def _capacity(under_test: Testbed, addresses: Sequence[str]) -> float:
    """Measure the requests per second of one engine that always has a queue, on all at once."""
    ended: list[float] = []
    requests = arrivals(1.0, BACKLOG * len(addresses), 1)
    pools = [Pool(Target(address, under_test.ports["engine"])) for address in addresses]

    async def ask(pool: Pool, body: bytes) -> None:
        await _answer(pool, body)
        ended.append(time.monotonic())

    async with asyncio.TaskGroup() as group:
        for number, text in enumerate(texts(requests, 1)):
            body = completion_request("direct", text, requests[number].output_tokens)
            group.create_task(ask(pools[number % len(pools)], body))
    for pool in pools:
        pool.close()
    first, last = len(ended) // 10, len(ended) * 7 // 10  # before the first engines run dry
    return (last - first) / (ended[last] - ended[first]) / len(addresses)


async def _answer(pool: Pool, body: bytes) -> dict[str, float]:
    status, answer = await pool.send(body)
    if status != 200:
        raise TestbedError(f"a request failed: HTTP {status}: {answer[:200].decode(errors='replace')}")
    told: dict[str, float] = json.loads(answer)
    return told
