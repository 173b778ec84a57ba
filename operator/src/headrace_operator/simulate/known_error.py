"""How far the simulator was off when compared with measured runs; shipped with the cost models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any


def known_error() -> Mapping[str, Any]:
    """`source` (one line), and `runs`: signed errors of the means in percent (`ttft`, `tpot`, `e2e`)."""
    file = resources.files("headrace_engine.cost").joinpath("known_error.json")
    if not file.is_file():
        return {"source": "not compared with a measured run yet", "runs": {}}
    document: Mapping[str, Any] = json.loads(file.read_text("utf-8"))
    return document


def in_words(document: Mapping[str, Any]) -> str:
    """One line for people."""
    runs = [
        f"{run}: TTFT {errors['ttft']:+.1f} %, TBT {errors['tpot']:+.1f} %, JCT {errors['e2e']:+.1f} %"
        for run, errors in document["runs"].items()
    ]
    return f"{'; '.join(runs) or 'unknown'} (means, {document['source']})"
