"""One of two pickers ends, or stalls, while a real Envoy asks both: how long requests go on without a picker.

Envoy counts each request that it sends on by itself, by least requests. The time from the end of the picker
until the last of them is what counts; requests come all the while, at a steady rate.
"""

import asyncio
import copy
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from e2e.bench.gateway.http1 import chat_request
from e2e.bench.gateway.load import steady_rate
from e2e.bench.gateway.settings import ENGINES
from e2e.bench.gateway.testbed import HOST, Testbed, TestbedError, start_testbed
from headrace_gateway import names

FIRST, SECOND = HOST, "127.0.0.2"
ENDS = {"killed": signal.SIGKILL, "stalled": signal.SIGSTOP, "stopped": signal.SIGTERM}
RATE = 200.0  # requests a second
BEFORE, AFTER = 1.0, 5.0  # seconds of load beside the end
POLL = 0.01
_MISSED = "http.gateway.ext_authz.failure_mode_allowed"


@dataclass(frozen=True, slots=True)
class Missed:
    """What went on without a picker: seconds until the last of it, how many requests, how many failed."""

    seconds: float
    requests: int
    failures: int


async def measure(trials: int, say: Callable[[str], None]) -> dict[str, list[Missed]]:
    """End the picker so many times in each way; raises TestbedError."""
    found: dict[str, list[Missed]] = {}
    for end, number in ENDS.items():
        for trial in range(trials):
            with tempfile.TemporaryDirectory() as folder, start_testbed(Path(folder)) as under_test:
                # Each picker in turn: one of them also configures Envoy.
                found.setdefault(end, []).append(await _once(under_test, number, (FIRST, SECOND)[trial % 2]))
            say(f"  {end}: {found[end][-1]}")
    return found


async def _once(under_test: Testbed, number: signal.Signals, victim: str) -> Missed:
    under_test.serve_instantly()
    for address in (FIRST, SECOND):
        under_test.start_picker(address, "--address", address, "--all", FIRST, SECOND)
    under_test.start_envoy(_ask_both)
    await under_test.ready(ENGINES)
    load = asyncio.create_task(
        steady_rate(under_test.gateway, chat_request("chat", "hello"), RATE, BEFORE + AFTER, Random(1))
    )
    await asyncio.sleep(BEFORE)
    before = last = await _missed(under_test)
    ended = changed = time.monotonic()
    under_test.processes[victim].send_signal(number)
    while not load.done():
        await asyncio.sleep(POLL)
        now = await _missed(under_test)
        if now != last:
            last, changed = now, time.monotonic()
    sent = await load
    under_test.processes[victim].send_signal(signal.SIGCONT)
    if sent.requests < RATE * (BEFORE + AFTER) / 2:
        raise TestbedError("too few requests were sent")
    return Missed(changed - ended, last - before, sent.failures)


def _ask_both(document: dict[str, Any]) -> None:
    """Have Envoy know both pickers, as it does in a cluster by their headless Service."""
    for cluster in document["static_resources"]["clusters"]:
        if cluster["name"] not in {names.PICKER_CLUSTER, names.XDS_CLUSTER}:
            continue
        [group] = cluster["load_assignment"]["endpoints"]
        [host] = group["lb_endpoints"]
        another = copy.deepcopy(host)
        another["endpoint"]["address"]["socket_address"]["address"] = SECOND
        group["lb_endpoints"].append(another)


async def _missed(under_test: Testbed) -> int:
    return await asyncio.to_thread(under_test.envoy_stat, _MISSED)
