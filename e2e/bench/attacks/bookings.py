"""How many honest requests are refused for what another client sends, and engines refuse.

The picker's own decisions on a clock of their own: a service with `maxQueue` has two idle engines that report
twenty times a second, and gets twenty requests a second that reach them, and one that never does.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from e2e.bench.gateway import pick_cost
from headrace_engine.contracts import GatewayConfig
from headrace_gateway.catalog import Catalog, Service, ServiceKey
from headrace_gateway.pick.picker import Choice, Picker

KEY = ServiceKey("llm", "chat")
MOST_QUEUE_MS = 10_000
SECONDS = 120
A_SECOND = 20  # honest requests
IDLE = replace(pick_cost.REPORT, running=0, prefill_tokens_per_second=10_000.0, max_model_len=32_768)


def bodies() -> Mapping[str, bytes]:
    """Make what vLLM refuses, for its temperature: prompts and numbers of answers that weigh much."""
    return {
        "long": _body("word " * 30_000, temperature=-1),
        "many": _body("word " * 700, temperature=-1, n=128),
        "long_and_many": _body("word " * 30_000, temperature=-1, n=128),
        "endless": _body("word " * 200_000, temperature=-1, n=128),
    }


def _body(text: str, **more: Any) -> bytes:
    return json.dumps({"model": "chat", "messages": [{"role": "user", "content": text}], **more}).encode()


def measure() -> dict[str, float]:
    """Return how many honest requests are refused beside each of the bodies, one a second, and in all."""
    refused = {f"bookings_refused_honest_{kind}": count_refused(body) for kind, body in bodies().items()}
    return {**refused, "bookings_refused_honest": sum(refused.values())}


def count_refused(body: bytes) -> int:
    """Count the honest requests that are refused in `SECONDS` in which the body is sent once a second."""
    now = 0.0
    picker = Picker(lambda: now, Random(1))
    config = GatewayConfig("llm", "chat", ("chat",), "chat", max_queue_ms=MOST_QUEUE_MS)
    landed = {"10.0.0.1": 0, "10.0.0.2": 0}
    picker.set_catalog(Catalog.build([Service(config, tuple(landed))]))
    honest, refused = _body("x" * 400), 0
    for tick in range(SECONDS * A_SECOND):
        now = tick / A_SECOND
        for address, arrivals in landed.items():
            picker.observe(KEY, address, replace(IDLE, arrivals=arrivals, arrived_tokens=100 * arrivals))
        choice = picker.decide(str(KEY), honest)
        if isinstance(choice, Choice):
            landed[choice.host.partition(":")[0]] += 1
        else:
            refused += 1
        if tick % A_SECOND == 0:
            picker.decide(str(KEY), body)
    return refused
