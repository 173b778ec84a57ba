"""What the study of DoublingBudget runs: workloads, loads and forms of the policy, each a `Case`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Kind
from e2e.bench.runs.doubt import CORNERS
from e2e.bench.runs.engine import Case
from e2e.bench.runs.setting import Setting
from e2e.bench.runs.tuning import Tunings, Wanted

SHORT_OF_KV = "llama-3-8b-h100-8gib"
EIGHT = tuple(range(8))
SIX = tuple(range(6))  # as many as the trace has
LONG_TAILS = Setting(
    "r1",
    "a reasoning service (ServeGen's DeepSeek-R1), Llama-3-8B on H100 with 8 GiB of KV",
    "servegen-deepseek-r1",
    SHORT_OF_KV,
    (0.5, 0.9, 1.0),
    (),
    0.9,
    EIGHT,
    1000,
    600,
)
CONVERSATION = Setting(
    "convkv",
    "Azure conversation as recorded, Llama-3-8B on H100 with 8 GiB of KV",
    "conversation",
    SHORT_OF_KV,
    (0.5, 0.9, 1.0),
    (),
    0.9,
    SIX,
    2000,
    1300,
)
SHAREGPT = Setting(
    "sharegpt",
    "ShareGPT lengths, OPT-13B on A100 with 12 GB of KV",
    "sharegpt-poisson",
    "opt-13b-a100",
    (0.5, 0.9, 1.0),
    (),
    0.9,
    EIGHT,
    1000,
    600,
)
FEW = tuple(range(4))  # seeds, where nothing much is expected to differ, and of what is compared at one load
AMPLE = tuple(
    replace(
        each,
        key=key,
        name=each.name.replace("8 GiB", "54 GiB"),
        engine="llama-3-8b-h100",
        loads=(0.9,),
        seeds=FEW,
    )
    for each, key in ((LONG_TAILS, "r1ample"), (CONVERSATION, "conv"))
)
"""KV binds on none of these."""
SETTINGS = (LONG_TAILS, CONVERSATION, SHAREGPT, *AMPLE)
TAKEN_APART = tuple(replace(each, seeds=FEW) for each in (LONG_TAILS, CONVERSATION))
"""Where the policy's forms are compared, and other policies."""
DOUBTED = LONG_TAILS  # put to the corners of the cost model's doubt, at its point
AIM = "e2e_mean"  # what engine settings are tuned for
STARVATIONS = (0, 50, 100, 400, 1600)  # percent, beside the default


def doubling_budget(case: Case, **methods: Any) -> Case:
    """Return `case` with DoublingBudget, by these methods."""
    return replace(case, policy="DoublingBudget", methods=tuple(sorted(methods.items())))


def starving_after(percent: int) -> Kind:
    """Make DoublingBudget with this starvation threshold."""
    return lambda case: replace(doubling_budget(case), parameters=(("starvationPercent", percent),))


TUNED: Mapping[str, Kind] = {
    "stock": comparison.stock,
    "doubling": doubling_budget,
    "mlfq": comparison.other("MLFQ"),
}
"""Whose engine settings are tuned, each with the same effort."""


def wanted() -> dict[Wanted, tuple[Setting, Kind]]:
    """List whose engine settings are tuned, for the least mean E2E."""
    return {Wanted(each.key, who, AIM): (each, kind) for each in SETTINGS for who, kind in TUNED.items()}


def kinds(setting: Setting, tunings: Tunings) -> dict[str, Kind]:
    """Return what is run at all loads, by name."""
    tuned = {who: tuning.tuned(kind, tunings[Wanted(setting.key, who, AIM)]) for who, kind in TUNED.items()}
    return {
        "stock": comparison.stock,
        "DoublingBudget": doubling_budget,
        "tuned stock": tuned["stock"],
        "tuned DoublingBudget": tuned["doubling"],
        "tuned MLFQ": tuned["mlfq"],
    }


def forms() -> dict[str, Kind]:
    """Return the policy's forms and what else could be chosen, by name, on default engines."""
    made: dict[str, Kind] = {
        "DoublingBudget": doubling_budget,
        "preempts always": lambda case: doubling_budget(case, preemption="Always"),
        "preempts never": lambda case: doubling_budget(case, preemption="Never"),
        "one phase a step": lambda case: doubling_budget(case, samePhase=True),
        "as published": lambda case: doubling_budget(case, preemption="Always", samePhase=True),
    }
    made |= {f"starvation {percent} %": starving_after(percent) for percent in STARVATIONS}
    return made | {name: comparison.other(name) for name in ("MLFQ", "SRPT", "LARRY", "EconoServe")}


def doubted() -> list[tuple[Case, Case]]:
    """Return DoublingBudget and stock, one seed, at each corner of the cost model's doubt."""
    cases = [doubt(DOUBTED.case(DOUBTED.point, 0)) for doubt in CORNERS]
    return [(doubling_budget(case), case) for case in cases]


def everything(tunings: Tunings) -> list[Case]:
    """List all runs of the study, each once."""
    made = [case for pair in doubted() for case in pair]
    for setting in SETTINGS:
        made += comparison.sweep(setting, kinds(setting, tunings).values())
    for setting in TAKEN_APART:
        made += comparison.sweep(setting, forms().values(), [setting.point])
    return list(dict.fromkeys(made))
