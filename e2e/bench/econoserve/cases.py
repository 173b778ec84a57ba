"""What the study of EconoServe runs: workloads, loads, settings and policies, each a `Case`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Kind
from e2e.bench.runs.doubt import CORNERS
from e2e.bench.runs.engine import DISTSERVE, E2E_SCALES, Case
from e2e.bench.runs.setting import Setting
from e2e.bench.runs.tuning import Tunings, Wanted

ACCURATE = 75  # percent of the lengths told truly; EconoServe reports 70 to 78
CLAIRVOYANT = 100
OPT = "opt-13b-a100"
H100 = "llama-3-8b-h100"
KV = Setting(
    "kvbound",
    "ShareGPT lengths, OPT-13B on A100 with 12 GB of KV",
    "sharegpt-poisson",
    OPT,
    (0.6, 0.7, 0.8, 0.9, 1.0, 1.1),
    (0.5,),
    1.0,
    tuple(range(8)),
    2000,
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
TUNED = (KV, ALPACA, BOOKCORPUS)  # by latency
ONE = replace(KV, seeds=(0,))
TARGET = "e2e_2x"
GOODPUT, LATENCY = f"{tuning.MET}{TARGET}", "normalized_mean"  # what engine settings are tuned for
VARIANTS = ("Full", "SDO", "SD", "D")
ORDERED = ("Full", "SDO")  # the others go by arrival
PADDING = 15  # percent; the paper's for ShareGPT
PATIENCES = (0, 100, 400)
LOW_LOADS = (0.1, 0.2, 0.4)  # where those that reserve a whole context are looked at
FEW = 250  # requests there: the engine is hardly busy, and each of its many steps takes as long to simulate
PAIR_LOADS = (0.9, 1.0, 1.1, 1.4, 1.8)  # of two GPUs
RESERVING = ("Orca", "SRTF", "FastServe")
ONE_GPU = ("Sarathi", "MultiRes", "NoPreempt", "SRPT")


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


def published(variant: str, accuracy: int = ACCURATE) -> Kind:
    """Make the paper's form: its order of queues if it has one, its padding for these lengths, no ageing."""
    order = {"order": "ThreeKeys"} if variant in ORDERED else {}
    return econoserve(accuracy, methods={"variant": variant, **order}, paddingPercent=PADDING, patience=0)


PUBLISHED = published("Full")


def other(policy: str) -> Kind:
    """Return one of the simulator's baselines, on an engine with the default settings."""
    if policy in RESERVING:
        return lambda case: replace(case, policy=policy, requests=FEW)
    return comparison.other(policy)


LIVE, TOLD = econoserve(None), econoserve()
CLAIRVOYANTS: dict[str, Kind] = {
    "EconoServe, all lengths known": econoserve(CLAIRVOYANT),
    "and nobody moved ahead": econoserve(CLAIRVOYANT, patience=0),
    "SRPT, all lengths known": other("SRPT"),
}


def wanted() -> dict[Wanted, tuple[Setting, Kind]]:
    """List whose engine settings are tuned: stock's and EconoServe's with live lengths, for each aim."""
    aims = [(KV, GOODPUT), *((each, LATENCY) for each in TUNED)]
    return {
        Wanted(each.key, who, aim): (each, kind)
        for each, aim in aims
        for who, kind in (("stock", comparison.stock), ("econoserve", LIVE))
    }


def tuned_stock(setting: Setting, aim: str, tunings: Tunings) -> Kind:
    """Return stock with the engine settings that did best for the aim."""
    return tuning.tuned(comparison.stock, tunings[Wanted(setting.key, "stock", aim)])


def tuned(kind: Kind, setting: Setting, aim: str, tunings: Tunings) -> Kind:
    """Return this kind with the engine settings that were best for EconoServe with live lengths."""
    return tuning.tuned(kind, tunings[Wanted(setting.key, "econoserve", aim)])


def compared(tunings: Tunings) -> dict[str, Kind]:
    """List what goodputs are of beside tuned stock, the product first, by their names on the page."""
    made = {"live": tuned(LIVE, KV, GOODPUT, tunings), "live, default engine": LIVE}
    made["75 % right"] = tuned(TOLD, KV, GOODPUT, tunings)
    return made | clairvoyants(tunings)


def clairvoyants(tunings: Tunings) -> dict[str, Kind]:
    """List policies that know all lengths, on engines with the tuned settings and with the default ones."""
    made = {name: tuned(kind, KV, GOODPUT, tunings) for name, kind in CLAIRVOYANTS.items()}
    return made | {f"{name}, default engine": kind for name, kind in CLAIRVOYANTS.items()}


def everything(tunings: Tunings) -> list[Case]:
    """List all runs of the study, each once."""
    stock = tuned_stock(KV, GOODPUT, tunings)
    made = comparison.sweep(KV, (stock, *compared(tunings).values()), KV.loads)
    made += comparison.watermarks(KV, stock)
    for each in TUNED:
        best = [tuned_stock(each, LATENCY, tunings), tuned(LIVE, each, LATENCY, tunings), LIVE, TOLD]
        made += comparison.sweep(each, best, each.loads)
    for each in SETTINGS:
        made += comparison.sweep(each, (comparison.stock, LIVE))
    made += comparison.sweep(KV, at_point().values(), [KV.point])
    made += rivals() + [case for pair in doubted(tunings).values() for case in pair]
    for kind in (comparison.stock, PUBLISHED, TOLD):
        made += comparison.sweep(ONE, [kind], KV.loads)
    scales = (tuned(kind, KV, GOODPUT, tunings) for kind in scaled().values())
    made += comparison.sweep(ONE, [stock, *scales], [KV.point])
    return list(dict.fromkeys(made))


def at_point() -> dict[str, Kind]:
    """List what is compared at the point alone, by the name that it has on the page."""
    made = {f"as published, {name}": published(name) for name in VARIANTS}
    made["as published, all lengths known"] = published("Full", CLAIRVOYANT)
    made["Full, order Footprint"] = econoserve(methods={"variant": "Full"})
    made |= {f"patience {each} %": econoserve(patience=each) for each in PATIENCES}
    made["order ThreeKeys"] = econoserve(methods={"order": "ThreeKeys"})
    made |= {f"{each} % of the lengths right": econoserve(each) for each in (50, ACCURATE, CLAIRVOYANT)}
    return made


def scaled() -> dict[float, Kind]:
    """List EconoServe with live lengths by the scale of its deadline; the policy is told the scale."""
    made = {2.0: LIVE}
    made |= {scale: econoserve(None, f"e2e_{scale * 100:.0f}") for scale in E2E_SCALES}
    return dict(sorted(made.items()))


def rivals() -> list[Case]:
    """List other systems, one seed: loads at which each may sustain something."""
    made = comparison.sweep(ONE, map(other, RESERVING), LOW_LOADS)
    made += comparison.sweep(ONE, [other(name) for name in ONE_GPU], KV.loads)
    return made + comparison.sweep(ONE, [other(DISTSERVE)], PAIR_LOADS)


def doubted(tunings: Tunings) -> dict[str, tuple[Case, Case]]:
    """Return tuned stock and EconoServe with live lengths at the corners of the cost model's doubt.

    Without the host's: the model of OPT-13B was fitted to whole steps, host and all.
    """
    case = KV.case(KV.point, 0)
    stock, ours = tuned_stock(KV, LATENCY, tunings), tuned(LIVE, KV, LATENCY, tunings)
    return {str(doubt): (stock(doubt(case)), ours(doubt(case))) for doubt in CORNERS if doubt.host == 1}
