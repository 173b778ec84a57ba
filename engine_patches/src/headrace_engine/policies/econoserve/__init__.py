"""EconoServe: keeps the KV cache full without running out of it, from predicted output lengths.

A request starts if the KV of all running requests, as predicted, stays within the cache until they end; and
of the waiting ones that goes first which takes least KV for least time, among those that can still meet their
deadline [EconoServe: Maximizing Multi-Resource Utilization with SLO Guarantees in LLM Serving]. Predicted
lengths come from the engine, see `view.EngineView.predicted_output`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_engine.policies import ageing
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.econoserve.ledger import Ledger
from headrace_engine.policies.econoserve.padded_lengths import PaddedLengths
from headrace_engine.policies.econoserve.peak import FuturePeak
from headrace_engine.policies.econoserve.task_queue import (
    Deadlines,
    Ranking,
    StepAverage,
    TaskQueue,
    by_arrival,
    by_footprint,
    by_three_keys,
)
from headrace_engine.policies.econoserve.tasks import Methods, Tasks
from headrace_engine.policies.engine_view import EngineLimits, EngineView
from headrace_engine.policies.parameters import choice, doc
from headrace_engine.policies.plan import RunningLimits
from headrace_engine.policies.step_budget import StepBudget

GAUGES = {
    "padding_percent": "by how much predicted lengths are enlarged now",
    "outgrown_requests": "finished requests that were longer than predicted and padded",
    "kv_promised_percent": "KV that running requests take at their predicted ends in sum, of the cache",
    "paused_requests": "requests that hold KV and wait for room to generate",
    "hosted_requests": "requests that generate in room that another one lends",
}


@dataclass(frozen=True, slots=True)
class Params:
    """How predictions are padded, what is kept in reserve, and who goes first."""

    variant: str = field(
        default="General",
        metadata=choice(
            "How KV is shared out. General: a request starts if the predicted KV of all that run stays within"
            " the cache. Full: the paper's, with KV allotted for predicted lengths, groups of the same length"
            " that start and end together, and hosts that lend their second half. SDO: without hosts. SD:"
            " also in order of arrival. D: also without groups.",
            "General",
            "Full",
            "SDO",
            "SD",
            "D",
        ),
    )
    order: str = field(
        default="Footprint",
        metadata=choice(
            "Who goes first among those that can meet their deadline. Footprint: least predicted KV times"
            " duration. ThreeKeys: nearest range of deadlines, then longest (the paper's form). SD and D go"
            " by arrival.",
            "Footprint",
            "ThreeKeys",
        ),
    )
    padding_percent: int = field(
        default=0,
        metadata=doc(
            "By how much predicted lengths are enlarged; if `underPercent` is set, only until enough requests"
            " have finished. General needs none, since the errors of many requests cancel out; the paper has"
            " 10, 15 and 20 for its three data sets.",
            unit="percent",
            minimum=0,
            maximum=1000,
        ),
    )
    under_percent: int = field(
        default=0,
        metadata=doc(
            "Calibrates the padding while serving: the smallest with which no more than this share of the"
            " requests outgrow their predicted length. 0 keeps `paddingPercent`; 25 is about the paper's"
            " sweet spot, for its forms.",
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
    buffer_percent: int = field(
        default=15,
        metadata=doc(
            "Full only: how much of a lent room stays empty, in case that its guest outgrows its prediction.",
            unit="percent",
            minimum=0,
            maximum=100,
        ),
    )
    patience: int = ageing.patience(200)


def compose(params: Params, limits: EngineLimits, step_budget: StepBudget) -> Policy:
    """EconoServe's order, admission and running_limits, within `step_budget`."""
    lengths, step_average = PaddedLengths(params.padding_percent, params.under_percent), StepAverage()
    deadlines = Deadlines(step_average)
    queue = TaskQueue(_ranking(params, lengths), deadlines, params.patience, limits)
    if params.variant == "General":
        form: FuturePeak | Tasks = FuturePeak(limits, params.reserved_percent, lengths)
    else:
        methods = Methods(
            synced=params.variant != "D",
            ordered=params.variant in ("SDO", "Full"),
            searched=params.variant in ("SDO", "Full") and params.order == "ThreeKeys",
            pipelined=params.variant == "Full",
            buffer_percent=params.buffer_percent,
        )
        form = Tasks(limits, methods, lengths, Ledger(limits, params.reserved_percent), queue, deadlines)

    def limit_running(view: EngineView) -> RunningLimits:
        step_average.observe_step(view)
        return form.limit_running(view)

    def gauges() -> tuple[float, ...]:
        return lengths.percent, lengths.outgrown, *form.gauges()

    return Policy(queue, form.admit, step_budget, limit_running, lengths.record_finished, gauges)


def _ranking(params: Params, lengths: PaddedLengths) -> Ranking:
    if params.variant in ("SD", "D"):
        return by_arrival(lengths)
    return by_three_keys(lengths) if params.order == "ThreeKeys" else by_footprint(lengths)
