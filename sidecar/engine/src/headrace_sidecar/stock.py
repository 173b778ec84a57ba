"""What an engine with vLLM's own scheduler holds, from vLLM's Prometheus metrics.

A stock engine has no board. Without any numbers a balancer would take it for empty and send it everything, so
its load is estimated: vLLM tells requests and the used share of the KV cache, and for tokens that it does not
tell the means over all its requests stand in. Asked once a second, since the page is large.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from headrace_engine.control.records import BoardRecord
from headrace_sidecar.estimates import Rates
from headrace_sidecar.stock_speed import StockSpeed, Totals

SAMPLE = re.compile(r"^vllm:(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
MOST = 1e15  # of anything that is counted
CACHE_LABEL = re.compile(r'(?:^|,)(num_gpu_blocks|block_size)="(\d{1,15})"')


@dataclass(frozen=True, slots=True)
class StockLoad:
    """A board that the engine did not write, and rates that were not fitted."""

    record: BoardRecord
    rates: Rates


def read_stock_load(page: str, now: float, speed: StockSpeed) -> StockLoad:
    """Read the load in vLLM's metrics `page`, fetched at unix time `now`; what the page lacks is 0.

    `speed` is what earlier pages of the same engine told, and takes this one in.
    """
    sums: dict[str, float] = defaultdict(float)
    cache = {"num_gpu_blocks": 0, "block_size": 0}
    for name, labels, value in SAMPLE.findall(page):
        if name == "cache_config_info":
            cache |= {key: int(number) for key, number in CACHE_LABEL.findall(labels)}
        else:
            sums[name] += _number(value)

    speed.add(
        now,
        Totals(
            sums["prompt_tokens_total"] - sums["prompt_tokens_cached_total"],
            sums["generation_tokens_total"],
            sums["iteration_tokens_total_count"],
            sums["request_prefill_time_seconds_sum"],
            sums["num_requests_running"],
        ),
    )
    rates = Rates(
        prefill_tokens_per_second=speed.prefill_tokens_per_second(),
        step_seconds=_mean(
            sums["inter_token_latency_seconds_sum"], sums["inter_token_latency_seconds_count"]
        ),
        mean_prompt_tokens=_mean(sums["request_prompt_tokens_sum"], sums["request_prompt_tokens_count"]),
        mean_output_tokens=_mean(
            sums["request_generation_tokens_sum"], sums["request_generation_tokens_count"]
        ),
    )
    running, waiting = int(sums["num_requests_running"]), int(sums["num_requests_waiting"])
    finishes = int(sums["request_success_total"])
    waiting_tokens = int(waiting * rates.mean_prompt_tokens)
    total, block_size = max(cache["num_gpu_blocks"] - 1, 0), cache["block_size"]  # one is vLLM's null block
    used = min(sums["kv_cache_usage_perc"], 1.0)
    record = BoardRecord(
        time=now,
        step=0,
        running=running,
        waiting=waiting,
        waiting_prefill_tokens=waiting_tokens,
        unfinished_prefill_tokens=0,
        waiting_kv_blocks=-(-waiting_tokens // block_size) if block_size else 0,
        free_kv_blocks=total - round(total * used),
        total_kv_blocks=total,
        block_size=block_size,
        arrivals=finishes + running + waiting,
        arrived_tokens=int(sums["prompt_tokens_total"]) + waiting_tokens,
        finishes=finishes,
        preemptions=int(sums["num_preemptions_total"]),
        fallback_steps=0,
        error_code=0,
        applied_hash=0,
        disabled=False,
        max_step_tokens=0,
    )
    return StockLoad(record, rates)


def _mean(total: float, count: float) -> float:
    return total / count if count > 0 else 0.0


def _number(text: str) -> float:
    """Return a sample's value; 0 for one that no count or sum of an engine can be."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0.0 <= value < MOST else 0.0
