"""EconoServe: keeps the KV cache full without running out of it, from predicted output lengths.

A request starts if the KV of all running requests, as predicted, stays within the cache until they end; and
of the waiting ones that goes first which takes least KV for least time, among those that can still meet their
deadline [EconoServe: Maximizing Multi-Resource Utilization with SLO Guarantees in LLM Serving]. Predicted
lengths come from the engine, see `view.EngineView.predicted_output`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace_engine.policies.composition import Policy
from headrace_engine.policies.econoserve.lengths import Lengths
from headrace_engine.policies.econoserve.peak import FuturePeak
from headrace_engine.policies.econoserve.queue import (
    Deadlines,
    Pace,
    TaskQueue,
    by_footprint,
    by_three_keys,
)
from headrace_engine.policies.parameters import choice, doc
from headrace_engine.policies.plan import NOTHING, Yielding
from headrace_engine.policies.step_budget import StepBudget
from headrace_engine.policies.view import EngineLimits, EngineView, RequestView


@dataclass(frozen=True, slots=True)
class Params:
    """How predictions are padded, what is kept in reserve, and who goes first."""

    order: str = field(
        default="Footprint",
        metadata=choice(
            "Who goes first among those that can meet their deadline. Footprint: least predicted KV times"
            " duration. ThreeKeys: nearest range of deadlines, then longest (the paper's form).",
            "Footprint",
            "ThreeKeys",
        ),
    )
    padding_percent: int = field(
        default=15,
        metadata=doc(
            "By how much predicted lengths are enlarged; if `underPercent` is set, only until enough requests"
            " have finished.",
            unit="percent",
            minimum=0,
            maximum=1000,
        ),
    )
    under_percent: int = field(
        default=25,
        metadata=doc(
            "Calibrates the padding: the smallest with which no more than this share of the requests outgrow"
            " their predicted length. 0 keeps `paddingPercent`.",
            unit="percent",
            minimum=0,
            maximum=99,
        ),
    )
    reserved_percent: int = field(
        default=3,
        metadata=doc(
            "Share of the KV cache that predictions must leave free, for requests that outgrow theirs.",
            unit="percent",
            minimum=0,
            maximum=50,
        ),
    )
    patience: int = field(
        default=200,
        metadata=doc(
            "How much may overtake a request, as with LARRY: once the engine has started this much work since"
            " it joined, it goes ahead of all others. 100 is the most work that has waited at once since the"
            " queue was last empty. 0 never moves anyone ahead, and long requests may starve.",
            unit="percent",
            minimum=0,
            maximum=10_000,
        ),
    )


def compose(params: Params, limits: EngineLimits, step_budget: StepBudget) -> Policy:
    """EconoServe's order and admission, within `step_budget`."""
    lengths, pace = Lengths(params.padding_percent, params.under_percent), Pace()
    ranking = {"Footprint": by_footprint, "ThreeKeys": by_three_keys}[params.order](lengths)
    order = TaskQueue(ranking, Deadlines(pace, lengths), params.patience, limits)
    peak = FuturePeak(limits, params.reserved_percent, lengths)

    def begin(view: EngineView) -> Yielding:
        pace.step(view)
        peak.follow(view)
        return NOTHING

    def admission(ranked: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
        for request in ranked:
            if view.running:
                if limits.blocks(request.num_tokens) > view.free_blocks - view.promised_blocks:
                    return
                if not peak.fits(request.num_tokens, lengths.left(request, view)):
                    return
            peak.enter(request, view)
            yield request

    return Policy(order, admission, step_budget, yielder=begin, observer=lengths.finished)
