"""How long it takes until one picker knows what another placed: real datagrams between two processes.

`python -m e2e.bench.pickers.telling PORT COUNT` is the other process; it prints the seconds of each.
"""

import asyncio
import sys
import time
from random import Random

import uvloop

from e2e import ports
from e2e.bench.gateway.load import Sent, poisson
from e2e.bench.gateway.testbed import TestbedError
from e2e.bench.pickers.failover import FIRST, SECOND
from headrace_gateway.balancers.endpoint import Work
from headrace_gateway.pick.peers import Peers
from headrace_gateway.pick.placement import Placement
from headrace_gateway.pick.prefix_index import cut_chunks

RATE, SECONDS = 200.0, 5.0
TEXT = b"word " * 800
WAIT_SECONDS = 30.0


async def measure() -> dict[str, float]:
    """Return the median and the 99th percentile in milliseconds; raises TestbedError."""
    [port] = ports.free(1)
    moments, chunks = list(poisson(RATE, SECONDS, Random(1))), cut_chunks(TEXT)
    module = ("-m", "e2e.bench.pickers.telling", f"{port}", f"{len(moments)}")
    other = await asyncio.create_subprocess_exec(sys.executable, *module, stdout=asyncio.subprocess.PIPE)
    assert other.stdout is not None
    peers = Peers(port, lambda _service, _placement: None)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await other.stdout.readline()  # it listens
            await peers.start(FIRST)
            peers.addresses = frozenset({SECOND})
            began = time.perf_counter()
            for moment in moments:
                await asyncio.sleep(max(0.0, began + moment - time.perf_counter()))
                # The time goes along as a count; the clock is the machine's, and the same in both processes.
                peers.share("llm/chat", Placement("10.0.0.1", Work(tokens=time.perf_counter()), chunks))
            told = Sent([float(each) for each in (await other.stdout.read()).split()])
    except TimeoutError:
        raise TestbedError("placements were lost between two pickers") from None
    finally:
        peers.close()
        if other.returncode is None:
            other.kill()
        await other.wait()
    return {f"told_p{percent}_ms": round(told.milliseconds(percent), 3) for percent in (50, 99)}


async def _listen(port: int, count: int) -> None:
    seconds: list[float] = []
    whole = asyncio.Event()

    def take_in(_service: str, placement: Placement) -> None:
        seconds.append(time.perf_counter() - placement.work.tokens)
        if len(seconds) == count:
            whole.set()

    peers = Peers(port, take_in)
    await peers.start(SECOND)
    peers.addresses = frozenset({FIRST})
    print("ready", flush=True)
    await whole.wait()
    print(*seconds)


if __name__ == "__main__":
    uvloop.run(_listen(*map(int, sys.argv[1:])))
