"""What a request is judged by: the service's own targets, or ours if it has none."""

from __future__ import annotations

from headrace_engine.contracts import Slo
from headrace_operator.api import LLMService, slo_document

ASSUMED = Slo(ttft_ms=1000, tbt_ms=50)  # an interactive service: an answer soon, then faster than one reads


def targets(service: LLMService) -> tuple[Slo, bool]:
    """The targets, and whether they are assumed."""
    own = slo_document(service.spec.slo)
    return (ASSUMED, True) if own == Slo() else (own, False)


def shown(slo: Slo) -> str:
    """`TTFT 1 s, TBT 50 ms`."""
    parts = (("TTFT", slo.ttft_ms), ("TBT", slo.tbt_ms), ("JCT", slo.jct_ms))
    return ", ".join(f"{name} {duration(value)}" for name, value in parts if value is not None)


def duration(milliseconds: int) -> str:
    """`500 ms`, `1 s`, `2.5 s`."""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:g} s"
