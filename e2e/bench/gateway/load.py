"""What the gateway costs: latency added at one connection and at a steady rate, the most it carries, CPU.

Plain Envoy and the gateway take turns in short rounds, so that whatever else the machine does meets both.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from e2e.bench.gateway.http1 import ClientConnection, Pool, Target, connect


@dataclass(slots=True)
class Sent:
    """What one run measured: seconds of each good answer, failures, and how long the run was."""

    latencies: list[float] = field(default_factory=list)
    failures: int = 0
    seconds: float = 0.0

    def add(self, other: "Sent") -> None:
        """Take in another run to the same target."""
        self.latencies += other.latencies
        self.failures += other.failures
        self.seconds += other.seconds

    @property
    def requests(self) -> int:
        """Count all requests that were sent."""
        return len(self.latencies) + self.failures

    @property
    def rate(self) -> float:
        """Return the good answers per second."""
        return len(self.latencies) / self.seconds

    def milliseconds(self, percent: float) -> float:
        """Return a percentile of the latencies."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000


async def closed_loop(target: Target, request: bytes, connections: int, seconds: float) -> Sent:
    """Run `connections` clients, each sending its next request when its last one is answered."""
    sent = Sent()
    clients = [await connect(target) for _ in range(connections)]
    started = time.perf_counter()
    ends = [_keep_sending(client, request, sent, started + seconds) for client in clients]
    await asyncio.gather(*ends)
    sent.seconds = time.perf_counter() - started
    for client in clients:
        client.close()
    return sent


def _keep_sending(client: ClientConnection, request: bytes, sent: Sent, until: float) -> asyncio.Future[None]:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    clock = time.perf_counter
    begun = clock()

    def send() -> None:
        nonlocal begun
        begun = clock()
        client.send(request, answered)

    def answered(status: int, _body: bytes) -> None:
        now = clock()
        if status == 200:
            sent.latencies.append(now - begun)
        else:
            sent.failures += 1
        if now >= until or status == 0:
            ended.set_result(None)
        else:
            send()

    send()
    return ended


async def steady_rate(target: Target, request: bytes, rate: float, seconds: float, random: Random) -> Sent:
    """Send Poisson arrivals at `rate` per second, whatever the answers."""
    sent = Sent()
    pool = Pool(target)

    async def one() -> None:
        begun = time.perf_counter()
        status, _ = await pool.send(request)
        if status == 200:
            sent.latencies.append(time.perf_counter() - begun)
        else:
            sent.failures += 1

    times = list(poisson(rate, seconds, random))
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for at in times:
            await asyncio.sleep(max(0.0, started + at - time.perf_counter()))
            group.create_task(one())
    sent.seconds = time.perf_counter() - started
    pool.close()
    return sent


def poisson(rate: float, seconds: float, random: Random) -> Iterator[float]:
    """Yield arrival times in [0, seconds)."""
    at = random.expovariate(rate)
    while at < seconds:
        yield at
        at += random.expovariate(rate)


Run = Callable[[Target], Awaitable[Sent]]


@dataclass(slots=True)
class Side:
    """One of the two that are compared; `cpu` names its processes and reads their CPU seconds."""

    target: Target
    cpu: Mapping[str, Callable[[], float]]
    sent: Sent = field(default_factory=Sent)
    rates: list[float] = field(default_factory=list)
    cpu_seconds: dict[str, float] = field(default_factory=dict)

    async def measure(self, run: Run) -> None:
        """Measure one round of a side."""
        before = {name: read() for name, read in self.cpu.items()}
        sent = await run(self.target)
        for name, read in self.cpu.items():
            self.cpu_seconds[name] = self.cpu_seconds.get(name, 0.0) + read() - before[name]
        self.sent.add(sent)
        self.rates.append(sent.rate)

    def cpu_us(self, name: str) -> float:
        """Return microseconds of CPU per request."""
        return self.cpu_seconds[name] / self.sent.requests * 1e6

    def median_rate(self) -> float:
        """Return the median rate of the rounds."""
        return statistics.median(self.rates)


async def take_turns(sides: Sequence[Side], rounds: int, run: Run) -> None:
    """Run so many rounds of each side, in turn."""
    for number in range(rounds):
        for side in sides if number % 2 else reversed(sides):
            await side.measure(run)
