"""What the study of EconoServe runs: workloads, loads, settings and policies, each a `Case`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from e2e.bench.runs import comparison
from e2e.bench.runs.comparison import Kind
from e2e.bench.runs.engine import DISTSERVE, E2E_SCALES, Case
from e2e.bench.runs.setting import Setting

ACCURATE = 75  # percent of the lengths told truly; EconoServe reports 70 to 78
CLAIRVOYANT = 100
OPT = "opt-13b-a100"
H100 = "llama-3-8b-h100"
KV = Setting(
    "kvbound",
    "ShareGPT lengths, OPT-13B on A100 with 12 GB of KV",
    "sharegpt-poisson",
    OPT,
    (0.7, 0.8, 0.9, 1.0, 1.1),
    (0.5,),
    1.0,
    comparison.SEEDS,
    1000,
)
ALPACA = Setting(
    "alpaca",
    "synthetic Alpaca lengths, OPT-13B on A100",
    "alpaca_synthetic-poisson",
    OPT,
    (1.0,),
    (0.5,),
    1.0,
    (0,),
    1000,
)
BOOKCORPUS = Setting(
    "bookcorpus",
    "synthetic BookCorpus lengths, OPT-13B on A100",
    "bookcorpus_synthetic-poisson",
    OPT,
    (1.0,),
    (0.5,),
    1.0,
    (0,),
    400,
)
MODERN = (
    Setting(
        "conv",
        "Azure conversation as recorded, Llama-3-8B on H100",
        "conversation",
        H100,
        (),
        (0.5, 1.0),
        1.0,
        (0,),
        1000,
    ),
    Setting("code", "Azure code as recorded, Llama-3-8B on H100", "code", H100, (), (0.5,), 0.5, (0,), 1000),
    Setting(
        "mooncake",
        "Mooncake conversations, Llama-3.1-8B on H100",
        "mooncake",
        "llama-3-8b-h100-long",
        (),
        (0.5, 1.0),
        1.0,
        (0,),
        500,
    ),
    Setting(
        "conv70b",
        "Azure conversation as recorded, Llama-3-70B on four H100",
        "conversation",
        "llama-3-70b-h100",
        (),
        (0.5, 1.0),
        1.0,
        (0,),
        800,
    ),
)
SETTINGS = (KV, ALPACA, BOOKCORPUS, *MODERN)
VARIANTS = ("Full", "SDO", "SD", "D")
ORDERED = ("Full", "SDO")  # the others go by arrival
PADDING = 15  # percent; the paper's for ShareGPT
PATIENCES = (0, 100, 400)
LOW_LOADS = (0.1, 0.2, 0.4)  # where those that reserve a whole context are looked at
FEW = 250  # requests there: the engine is hardly busy, and each of its many steps takes as long to simulate
PAIR_LOADS = (0.9, 1.0, 1.1, 1.4, 1.8)  # of two GPUs
RESERVING = ("Orca", "SRTF", "FastServe")
ONE_GPU = ("Sarathi", "MultiRes", "NoPreempt", "SRPT")
CORNERS = ((1.0, 3.0), (1.8, 0.0), (1.8, 3.0))  # of the grid of doubts; the fourth is the sweep itself


def econoserve(
    accuracy: int | None = ACCURATE,
    slo: str = "e2e_2x",
    methods: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Kind:
    """Make EconoServe with lengths of this accuracy, None for those that the engine predicts itself."""
    given, chosen = tuple(sorted(parameters.items())), tuple(sorted((methods or {}).items()))
    return lambda case: replace(
        case, policy="EconoServe", accuracy=accuracy, slo=slo, parameters=given, methods=chosen
    )


def published(variant: str) -> Kind:
    """Make the paper's form: its order of queues if it has one, its padding for these lengths, no ageing."""
    order = {"order": "ThreeKeys"} if variant in ORDERED else {}
    return econoserve(methods={"variant": variant, **order}, paddingPercent=PADDING, patience=0)


def other(policy: str) -> Kind:
    """Return one of the simulator's baselines, on an engine with the default settings."""
    if policy in RESERVING:
        return lambda case: replace(case, policy=policy, requests=FEW)
    return lambda case: replace(case, policy=policy)


OURS, LIVE = econoserve(), econoserve(None)
CLAIRVOYANTS: dict[str, Kind] = {
    "EconoServe, all lengths known": econoserve(CLAIRVOYANT),
    "and nobody moved ahead": econoserve(CLAIRVOYANT, patience=0),
    "SRPT, all lengths known": other("SRPT"),
}


def everything() -> list[Case]:
    """List all runs of the study, each once."""
    made = comparison.sweep(KV, (LIVE,))
    made += [
        case
        for load in KV.loads
        for kind in (OURS, *CLAIRVOYANTS.values())
        for case in comparison.runs(KV, load, kind)
    ]
    for setting in (ALPACA, BOOKCORPUS):
        made += comparison.sweep(setting, (OURS, LIVE))
    for setting in MODERN:
        made += comparison.sweep(setting, (LIVE,), tuned=False)
    made += [case for kind in at_point().values() for case in comparison.runs(KV, KV.point, kind)]
    made += rivals() + doubted()
    made += [
        comparison.runs(KV, KV.point, econoserve(slo=f"e2e_{scale * 100:.0f}"), 1)[0] for scale in E2E_SCALES
    ]
    return list(dict.fromkeys(made))


def at_point() -> dict[str, Kind]:
    """List what is compared at the point alone, by the name that it has on the page."""
    made = {f"as published, {name}": published(name) for name in VARIANTS}
    made["Full, order Footprint"] = econoserve(methods={"variant": "Full"})
    made |= {f"patience {each} %": econoserve(patience=each) for each in PATIENCES}
    made["order ThreeKeys"] = econoserve(methods={"order": "ThreeKeys"})
    made |= {f"{each} % of the lengths right": econoserve(each) for each in (50,)}
    return made


def rivals() -> list[Case]:
    """List other systems, one seed: loads at which each may sustain something."""
    made = [comparison.runs(KV, load, other(name), 1)[0] for name in RESERVING for load in LOW_LOADS]
    made += [comparison.runs(KV, load, other(name), 1)[0] for name in ONE_GPU for load in KV.loads]
    made += [comparison.runs(KV, load, other(DISTSERVE), 1)[0] for load in PAIR_LOADS]
    return made


def doubted() -> list[Case]:
    """List the finding at the corners of the cost model's doubt: both watermarks of stock, and ours."""
    return [
        replace(kind(KV.case(KV.point, 0)), mixed=mixed, overhead_ms=overhead)
        for mixed, overhead in CORNERS
        for kind in (*doubted_stock(), OURS)
    ]


def doubted_stock() -> list[Kind]:
    """List stock with both watermarks, for the grid of doubts."""
    return [comparison.tuned_with(8192, watermark) for watermark in (0.0, 0.05)]
