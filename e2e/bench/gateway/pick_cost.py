"""What one pick of SAL takes, by how many engines there are to choose from: the fleet alone, no network.

Each engine reports ten times a second and gets `PER_ENGINE` requests a second, of which its reports tell a
moment later; so engines have queues, and no two waits are alike. Only `Fleet.choose` is timed.
"""

import statistics
import time
from dataclasses import replace
from random import Random

from headrace_engine.contracts import GatewayConfig, LoadReport
from headrace_gateway.pick.fleet import Fleet
from headrace_gateway.pick.tokens import Prompt

ENGINES = (4, 64, 256)
PICKS = 4000
PER_ENGINE = 5.0  # requests a second
REPORT_SECONDS = 0.1
TEXT_BYTES = 4_000
SHARED_BYTES = 2_000  # of a beginning that one prompt in four has, in the second figure
BEGINNINGS = 50
PROMPTS = {
    "": "no two prompts alike",
    "_prefixes": "one in four with a known beginning",
}  # by suffix of figures

REPORT = LoadReport(
    boot="1",
    time=0.0,
    serving=True,
    running=40,
    waiting=0,
    waiting_prefill_tokens=0,
    unfinished_prefill_tokens=0,
    waiting_kv_blocks=0,
    free_kv_blocks=20_000,
    total_kv_blocks=27_000,
    block_size=16,
    arrivals=0,
    arrived_tokens=0,
    finishes=0,
    prefill_tokens_per_second=25_000.0,
    step_seconds=0.02,
    mean_prompt_tokens=1000.0,
    mean_output_tokens=200.0,
)


def measure() -> dict[str, float]:
    """Measure the median pick in microseconds: `pick_us_N_engines`, and with shared beginnings."""
    return {
        f"pick_us_{engines}_engines{suffix}": round(_median_us(engines, shares=bool(suffix)), 1)
        for engines in ENGINES
        for suffix in PROMPTS
    }


def _median_us(engines: int, *, shares: bool) -> float:
    chance = Random(engines)
    config = GatewayConfig("llm", "chat", ("chat",), "chat", prefix_caching=shares)
    fleet = Fleet.from_config(config, Random(1))
    addresses = [f"10.0.{number // 256}.{number % 256}" for number in range(engines)]
    fleet.set_addresses(addresses)
    sent = dict.fromkeys(addresses, 0)
    beginnings = [chance.randbytes(SHARED_BYTES) for _ in range(BEGINNINGS)]
    due = [(chance.uniform(0.0, REPORT_SECONDS), address) for address in addresses]
    due.sort()
    now, times = 0.0, []
    for _ in range(PICKS):
        now += 1 / (PER_ENGINE * engines)
        while due[0][0] <= now:
            at, address = due.pop(0)
            fleet.observe(address, _report(sent[address], chance), at)
            due.append((at + REPORT_SECONDS, address))
        text = b""
        if shares:
            beginning = (
                chance.choice(beginnings) if chance.random() < 0.25 else chance.randbytes(SHARED_BYTES)
            )
            text = beginning + chance.randbytes(TEXT_BYTES - SHARED_BYTES)
        prompt = Prompt(1, TEXT_BYTES, 0, text)
        began = time.perf_counter()
        chosen = fleet.choose(prompt, now)
        times.append(time.perf_counter() - began)
        sent[chosen.address] += 1
    return 1e6 * statistics.median(times[len(times) // 4 :])


def _report(arrivals: int, chance: Random) -> LoadReport:
    waiting = chance.randrange(0, 20_000)
    return replace(
        REPORT,
        arrivals=arrivals,
        arrived_tokens=1000 * arrivals,
        waiting=waiting // 1000,
        waiting_prefill_tokens=waiting,
        waiting_kv_blocks=waiting // 16,
        prefill_tokens_per_second=25_000.0 + chance.uniform(-2_000, 2_000),
    )
