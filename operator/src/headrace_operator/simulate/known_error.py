"""How far the simulator was off when compared with measured runs; shipped with the cost models."""

from __future__ import annotations

import json
from importlib import resources

from headrace_operator.api.bodies import Body

_RUNS = {"pro6000_8b": "Llama-3.1-8B on RTX PRO 6000", "qwen3_32b": "Qwen3-32B on 2 x RTX PRO 6000"}


def known_error() -> Body:
    """Read `source` (one line), and `runs`: signed errors of the means in percent (`ttft`, `tpot`, `e2e`)."""
    text = resources.files("headrace_engine.cost").joinpath("known_error.json").read_text("utf-8")
    document: Body = json.loads(text)
    return document


def describe_known_error(document: Body) -> str:
    """Write the known error in one line for people."""
    runs = [
        f"{_RUNS.get(run, run)}: "
        f"TTFT {errors['ttft']:+.1f} %, TPOT {errors['tpot']:+.1f} %, E2E {errors['e2e']:+.1f} %"
        for run, errors in document["runs"].items()
    ]
    return f"{'; '.join(runs)} (means; {document['source']})"
