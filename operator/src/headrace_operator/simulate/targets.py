"""What each request shall meet: the service's own targets, or ours if it has none."""

from __future__ import annotations

import dataclasses

from headrace_engine.contracts import Slo
from headrace_operator.api import LLMService, slo_document

ASSUMED = Slo(ttft_ms=1000, tpot_ms=50)  # an interactive service: an answer soon, then faster than one reads


def choose_targets(service: LLMService) -> tuple[Slo, bool]:
    """Return the targets, and whether they are assumed."""
    own = dataclasses.replace(slo_document(service.spec.slo), per_request=None)  # a trace asks for nothing
    return (ASSUMED, True) if own == Slo() else (own, False)


def format_targets(slo: Slo) -> str:
    """Write targets as `TTFT 1 s, TPOT 50 ms`."""
    return ", ".join(f"{name.upper()} {limit}" for name, limit in format_limits(slo).items())


def format_limits(slo: Slo) -> dict[str, str]:
    """Write each target that there is, in words: `{"ttft": "1 s", "e2e": "2 x alone"}`."""
    found = {
        name: format_duration(value)
        for name, value in (("ttft", slo.ttft_ms), ("tpot", slo.tpot_ms), ("e2e", slo.e2e_ms))
        if value is not None
    }
    if slo.e2e_scale_percent is not None:
        found["e2e"] = f"{slo.e2e_scale_percent / 100:g} x alone"
    return found


def format_duration(milliseconds: int) -> str:
    """Write milliseconds as `500 ms`, `1 s` or `2.5 s`."""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:g} s"
