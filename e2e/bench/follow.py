"""What it costs to follow many engines: `python -m e2e.bench.follow [--seconds 60] [--churn 600]`.

The real picker reads the load streams of 256 stand-in sidecars, 20 reports a second each, all of them
different. First its CPU time while nothing else happens. Then its memory while engines and services come and
go every second and requests from a fixed set of prompts are picked all along.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import uvloop

from e2e.bench.gateway.http1 import ServerConnection, listen
from e2e.bench.gateway.settings import service
from e2e.bench.gateway.testbed import HOST, TestbedError, engine_addresses, resident_bytes, start_testbed
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from headrace_engine.contracts import LoadReport, dumps, encode
from headrace_gateway import names
from headrace_gateway.headers import ROUTE_HEADER

COMMAND = "python -m e2e.bench.follow"
ENGINES = 256
SERVICES = 16
HERTZ = 20.0
SPARE = 64  # engines that are not in the catalog, while churning
REPLACED = 8  # each second
PICKS = 20.0  # requests a second
PROMPTS = [f"prompt {number} " * 200 for number in range(100)]
SETTLE_SECONDS = 5.0
WARM_SHARE = 0.3  # of the churn, before memory is looked at
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"


def main() -> int:
    """Measure and write the figures, or be the engines."""
    parser = describe(__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60, help="of each measurement of CPU time (default %(default)s)"
    )
    parser.add_argument("--churn", type=float, default=600, help="seconds of churn (default %(default)s)")
    parser.add_argument("--engines", type=int, nargs=2, metavar=("PORT", "COUNT"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.engines:
        uvloop.run(streams(*chosen.engines))
    try:
        figures = uvloop.run(measure(chosen.seconds, chosen.churn))
    except TestbedError as error:
        print(f"✗ {error}")
        return 1
    command = f"{COMMAND} --seconds {chosen.seconds:g} --churn {chosen.churn:g}"
    print(results.write("follow", command, figures))
    return 0


async def measure(seconds: float, churn: float) -> dict[str, float]:
    """Measure the figures; raises TestbedError."""
    with tempfile.TemporaryDirectory(prefix="follow-") as folder, start_testbed(Path(folder)) as made:
        port = made.ports["sidecar"]
        command = [sys.executable, "-m", "e2e.bench.follow", "--engines", str(port), str(ENGINES + SPARE)]
        made.start("engines", command)
        fleet = Fleet(made.folder / "catalog.json", made.ports["engine"], port)
        fleet.write()
        made.start_picker()
        deadline = time.monotonic() + 30
        while made.picker_metric("headrace_gateway_engines", 'state="reporting"') != ENGINES:
            if time.monotonic() > deadline:
                raise TestbedError(f"the picker does not have the reports of {ENGINES} engines")
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_SECONDS)
        pid = made.processes["picker"].pid
        reports = made.picker_metric("headrace_gateway_reports_total")
        cpu, started = made.cpu_seconds("picker"), time.monotonic()
        await asyncio.sleep(seconds)
        passed = time.monotonic() - started
        figures = {
            "picker_cores_256": round((made.cpu_seconds("picker") - cpu) / passed, 3),
            "reports_per_second": round(
                (made.picker_metric("headrace_gateway_reports_total") - reports) / passed
            ),
        }
        print(figures, flush=True)
        return figures | await memory(fleet, pid, made.ports["picks"], churn)


async def memory(fleet: "Fleet", pid: int, picks_port: int, seconds: float) -> dict[str, float]:
    """Measure how the picker's resident memory moves while everything changes."""
    samples: list[tuple[float, float]] = []
    picking = asyncio.create_task(pick_for_ever(picks_port))
    started = time.monotonic()
    while (now := time.monotonic() - started) < seconds:
        fleet.change()
        samples.append((now, resident_bytes(pid) / 2**20))
        await asyncio.sleep(1.0)
    picking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await picking
    warm = [mib for at, mib in samples if at >= WARM_SHARE * seconds]
    tenth = max(1, len(warm) // 10)
    return {
        "churn_seconds": round(seconds),
        "churned_engines": fleet.replaced,
        "picks_while_churning": PICKS * round(seconds),
        "rss_mib_begin": round(sum(warm[:tenth]) / tenth, 1),
        "rss_mib_end": round(sum(warm[-tenth:]) / tenth, 1),
        "rss_mib_most": round(max(mib for _, mib in samples), 1),
    }


class Fleet:
    """The catalog file and how it changes; engines are moved between the catalog and the spare ones."""

    def __init__(self, file: Path, port: int, sidecar_port: int) -> None:
        self.file, self.ports, self.random = file, (port, sidecar_port), Random(1)
        addresses = engine_addresses(0, ENGINES + SPARE)
        self.used, self.spare = addresses[:ENGINES], addresses[ENGINES:]
        self.numbers = itertools.count(SERVICES)
        self.services = [f"model-{number}" for number in range(SERVICES)]
        self.replaced = 0

    def change(self) -> None:
        """Let some engines make room for others, and one service for a new one."""
        for _ in range(REPLACED):
            at = self.random.randrange(len(self.used))
            self.spare.append(self.used[at])
            self.used[at] = self.spare.pop(0)
            self.replaced += 1
        self.services[self.random.randrange(1, SERVICES)] = f"model-{next(self.numbers)}"  # `model-0` stays
        self.write()

    def write(self) -> None:
        """Replace the catalog's file by this content."""
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(list(self._catalog())))
        new.rename(self.file)

    def _catalog(self) -> Iterator[dict[str, Any]]:
        share = ENGINES // SERVICES
        for number, name in enumerate(self.services):
            config = encode(service(name, "SAL", *self.ports))
            yield {"config": config, "addresses": self.used[number * share : (number + 1) * share]}


async def pick_for_ever(port: int) -> None:
    """Ask for an engine again and again, as Envoy does."""
    bodies = [json.dumps({"model": "model-0", "prompt": prompt}).encode() for prompt in PROMPTS]
    headers = {ROUTE_HEADER: "bench/model-0", "content-type": "application/json"}
    async with aiohttp.ClientSession() as session:
        for body in itertools.cycle(bodies):
            async with session.post(
                f"http://{HOST}:{port}{names.PICK_PATH}/v1/completions", data=body, headers=headers
            ) as answer:
                await answer.read()
            await asyncio.sleep(1 / PICKS)


async def streams(port: int, count: int) -> None:
    """Be the sidecars of so many engines: a report every 1/`HERTZ` seconds to whoever reads, for ever."""
    readers: list[list[ServerConnection]] = [[] for _ in range(count)]

    def respond(mine: list[ServerConnection]) -> Any:
        def answer(connection: ServerConnection, _head: bytes, _body: bytes) -> None:
            assert connection.transport is not None
            connection.transport.write(STREAM)
            mine.append(connection)

        return answer

    for address, mine in zip(engine_addresses(0, count), readers, strict=True):
        await listen(address, port, respond(mine))
    period, started = 1 / HERTZ, time.monotonic()
    for number in itertools.count():
        engine = number % count  # one after the other, evenly over the period
        due = started + number * period / count
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        mine = [each for each in readers[engine] if each.transport and not each.transport.is_closing()]
        readers[engine][:] = mine  # in place: connections are added to this list
        line = report(number, engine) if mine else b""
        for each in mine:
            assert each.transport is not None
            each.transport.write(b"%x\r\n%b\r\n" % (len(line), line))  # a chunk


def report(number: int, engine: int) -> bytes:
    """Make a report that differs from the one before in everything that changes on a busy engine."""
    busy = number % 97
    told = LoadReport(
        boot=f"boot-{engine}",
        time=time.time(),
        serving=True,
        running=100 + busy,
        waiting=busy,
        waiting_prefill_tokens=500 * busy,
        unfinished_prefill_tokens=64 * busy,
        waiting_kv_blocks=32 * busy,
        free_kv_blocks=20_000 - 100 * busy,
        total_kv_blocks=30_000,
        block_size=16,
        arrivals=number,
        arrived_tokens=500 * number,
        finishes=number,
        prefill_tokens_per_second=20_000.0 + busy,
        step_seconds=0.02,
        mean_prompt_tokens=500.0,
        mean_output_tokens=200.0,
    )
    return dumps(told).encode() + b"\n"


if __name__ == "__main__":
    sys.exit(main())
