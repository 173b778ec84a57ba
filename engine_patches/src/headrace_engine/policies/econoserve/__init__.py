"""EconoServe: keeps the KV cache full without running out of it, from predicted output lengths.

A request starts if the KV of all running requests, as predicted, stays within the cache until they end; and
of the waiting ones that goes first which takes least KV for least time, among those that can still meet their
deadline [EconoServe: Maximizing Multi-Resource Utilization with SLO Guarantees in LLM Serving]. Predicted
lengths come from the engine, see `view.EngineView.predicted_output`. The paper's own forms are for
simulations only: `headrace_engine.sim.published_econoserve`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from headrace_engine.policies import ageing
from headrace_engine.policies.composition import Policy, Preparer
from headrace_engine.policies.econoserve.padded_lengths import PaddedLengths
from headrace_engine.policies.econoserve.peak import FuturePeak
from headrace_engine.policies.econoserve.task_queue import Deadlines, StepAverage, TaskQueue, by_footprint
from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.parameters import doc
from headrace_engine.policies.plan import RunningLimits
from headrace_engine.policies.step_budget import StepBudget

GAUGES = {
    "padding_percent": "by how much predicted lengths are enlarged now",
    "outgrown_requests": "finished requests that were longer than predicted and padded",
    "kv_promised_percent": "KV that running requests take at their predicted ends in sum, of the cache",
}
IGNORED = ("variant", "order", "bufferPercent")


@dataclass(frozen=True, slots=True)
class Params:
    """How predictions are padded, what is kept in reserve, and how long a request may be passed over."""

    padding_percent: int = field(
        default=0,
        metadata=doc(
            "By how much predicted lengths are enlarged; if `underPercent` is set, only until enough requests"
            " have finished. Raise it where requests lose their KV because they outgrow their predictions;"
            " leave it at 0 otherwise, since the errors of many requests cancel out.",
            unit="percent",
            minimum=0,
            maximum=1000,
        ),
    )
    under_percent: int = field(
        default=0,
        metadata=doc(
            "Calibrates the padding while serving: the smallest with which no more than this share of the"
            " requests outgrow their predicted length. 0 keeps `paddingPercent`. Set it where a padding is"
            " needed and you do not know which; a lower share keeps more of the cache empty.",
            unit="percent",
            minimum=0,
            maximum=99,
        ),
    )
    reserved_percent: int = field(
        default=3,
        metadata=doc(
            "Share of the KV cache that predictions must leave free, for requests that outgrow theirs. Raise"
            " it where requests lose their KV all the same; lower it where that never happens and requests"
            " wait.",
            unit="percent",
            minimum=0,
            maximum=50,
        ),
    )
    patience: int = ageing.patience(200)


class Sharing(Protocol):
    """How the KV cache is shared out among the requests."""

    def limit_running(self, view: EngineView) -> RunningLimits:
        """Take in who runs now, as a step begins; return what running requests give up."""

    def admit(self, ranked: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
        """Pass on who may start, in order."""

    def gauges(self) -> tuple[float, ...]:
        """Return the percent of the cache that is promised, then what else there is to show."""


def compose(params: Params, limits: EngineLimits, step_budget: StepBudget) -> Policy:
    """Compose EconoServe's order and admission, within `step_budget`."""
    lengths, step_average = PaddedLengths(params.padding_percent, params.under_percent), StepAverage()
    queue = TaskQueue(by_footprint(lengths), Deadlines(step_average), params.patience, limits)
    sharing = FuturePeak(limits, params.reserved_percent, lengths)

    def prepare(view: EngineView) -> None:
        queue.prepare(view)
        sharing.prepare(view)

    return put_together(queue, sharing, lengths, step_average, step_budget, preparer=prepare)


def put_together(
    queue: TaskQueue,
    sharing: Sharing,
    lengths: PaddedLengths,
    step_average: StepAverage,
    step_budget: StepBudget,
    *,
    preparer: Preparer | None = None,
) -> Policy:
    """Compose the policy of these parts, which know one another already."""

    def limit_running(view: EngineView) -> RunningLimits:
        step_average.observe_step(view)
        return sharing.limit_running(view)

    def gauges() -> tuple[float, ...]:
        return lengths.percent, lengths.outgrown, *sharing.gauges()

    return Policy(queue, sharing.admit, step_budget, limit_running, lengths.record_finished, gauges, preparer)
