"""Measuring on real engines: their capacity, and one run."""

import random
from collections.abc import Callable, Sequence

from e2e.bench.live.cases import Workload
from e2e.bench.live.clients import Asker
from e2e.bench.live.figures import Served, of_run
from e2e.bench.live.servers import Engines
from headrace_engine.sim.workloads.arrival import Arrival

PLUGIN = "plugin"  # the name of the server with our plugin
MEASURED = (0.15, 0.85)  # of the closed loop's answers: what comes between is counted
CLIENTS = (0.25, 0.5, 1.0)  # of the device's: where KV binds, more of them get less done

SMALLEST_PROMPT = 2
DECODES = 64  # at once, in the warm-up


def asker(engines: Engines, name: str) -> Asker:
    """Return who sends requests to a server."""
    return Asker(engines.servers[name].url, engines.end_token, engines.device.settings.max_model_len)


async def warm_up(engines: Engines, name: str, step_tokens: int) -> None:
    """Have a server make a step of each size, up to `step_tokens`, and of each number of decodes.

    On a CPU the first step of a size takes up to half as long again: oneDNN compiles for it. Whoever has
    fewer sizes would win by that, which no GPU shows.
    """
    asking = asker(engines, name)
    for size in range(SMALLEST_PROMPT, step_tokens + 1):
        await asking.open_loop([Arrival(0.0, size, 1)], f"warm-up {name} {size}")
    fewer_and_fewer = [Arrival(0.0, SMALLEST_PROMPT, length) for length in range(1, DECODES + 1)]
    await asking.open_loop(fewer_and_fewer, f"warm-up {name}")


async def capacity(engines: Engines, name: str, workload: Workload) -> float:
    """Return the most requests a second that a server answers while so many clients keep asking."""
    device = engines.device
    requests = workload.pool(device.clients * 4)
    random.Random(f"capacity {workload.name}").shuffle(requests)
    asking = asker(engines, name)
    rates = []
    for share in CLIENTS:
        clients, label = round(share * device.clients), f"capacity {workload.name} {share:g}"
        rates.append(sustained(await asking.closed_loop(requests, clients, device.capacity, label)))
    return max(rates)


def sustained(finished: Sequence[float]) -> float:
    """Return answers a second of those in the middle; `finished`: when each was whole, sorted."""
    first, last = (int(share * len(finished)) for share in MEASURED)
    return (last - first) / (finished[last] - finished[first])


async def run(
    asking: Asker,
    workload: Workload,
    arrivals: Sequence[Arrival],
    label: str,
    alone: Callable[[Arrival], float],
) -> dict[str, float]:
    """Send the arrivals to a server; the figures of the run. `alone`: seconds of a request by itself."""
    samples = await asking.open_loop(arrivals, label)
    served = [
        Served(each.at, sample.ttft, sample.tpot, sample.e2e, alone(each))
        for each, sample in zip(arrivals, samples, strict=True)
    ]
    return of_run(served, workload.warm_up, workload.e2e_scale)
