"""EconoServe as published, for simulations only: KV allotted for predicted lengths, in groups, with hosts.

The paper's variants differ in which of its methods are on; `General` is the form that engines run. They are
here to compare with: `headrace_engine.sim.form` lets simulations choose them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_engine.policies import econoserve
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.econoserve.padded_lengths import PaddedLengths
from headrace_engine.policies.econoserve.peak import FuturePeak
from headrace_engine.policies.econoserve.task_queue import Deadlines, Ranking, StepAverage, by_footprint
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.policies.parameters import choice, doc
from headrace_engine.policies.step_budget import StepBudget
from headrace_engine.sim.published_econoserve.ledger import Ledger
from headrace_engine.sim.published_econoserve.rankings import SearchedQueue, by_arrival, by_three_keys
from headrace_engine.sim.published_econoserve.tasks import Tasks, Variant


@dataclass(frozen=True, slots=True)
class Methods:
    """The paper's methods, and ours in their place; the defaults are what engines run."""

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
    buffer_percent: int = field(
        default=15,
        metadata=doc(
            "Full only: how much of a lent room stays empty, in case that its guest outgrows its prediction.",
            unit="percent",
            minimum=0,
            maximum=100,
        ),
    )


def compose(
    params: econoserve.Params, limits: EngineLimits, step_budget: StepBudget, methods: Methods
) -> Policy:
    """Compose EconoServe by these methods, within `step_budget`."""
    if methods.variant == "General" and methods.order == "Footprint":
        return econoserve.compose(params, limits, step_budget)
    lengths, step_average = PaddedLengths(params.padding_percent, params.under_percent), StepAverage()
    deadlines = Deadlines(step_average)
    queue = SearchedQueue(_ranking(methods, lengths), deadlines, params.patience, limits)
    if methods.variant == "General":
        sharing: econoserve.Sharing = FuturePeak(limits, params.reserved_percent, lengths)
    else:
        variant = Variant(
            synced=methods.variant != "D",
            ordered=methods.variant in ("SDO", "Full"),
            searched=methods.variant in ("SDO", "Full") and methods.order == "ThreeKeys",
            pipelined=methods.variant == "Full",
            buffer_percent=methods.buffer_percent,
        )
        ledger = Ledger(limits, params.reserved_percent)
        sharing = Tasks(limits, variant, lengths, ledger, queue, deadlines)
    return econoserve.put_together(queue, sharing, lengths, step_average, step_budget)


def _ranking(methods: Methods, lengths: PaddedLengths) -> Ranking:
    if methods.variant in ("SD", "D"):
        return by_arrival()
    return by_three_keys() if methods.order == "ThreeKeys" else by_footprint(lengths)
