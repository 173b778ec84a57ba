"""What the study of AccelGen runs: workloads, loads, settings and forms of the policy, each a `Case`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from e2e.bench.runs import comparison, search, tuning
from e2e.bench.runs.comparison import Kind
from e2e.bench.runs.doubt import CORNERS
from e2e.bench.runs.engine import Case
from e2e.bench.runs.search import Search
from e2e.bench.runs.setting import Setting
from e2e.bench.runs.tuning import Tunings, Wanted
from headrace_engine.sim.metrics import Goodput

H100 = "llama-3-8b-h100"
EIGHT = tuple(range(8))
LADDER = (0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4)
CONVERSATION = Setting(
    "conv",
    "Azure conversation as recorded, Llama-3-8B on H100",
    "conversation",
    H100,
    LADDER,
    (0.3, 0.5),
    1.0,
    tuple(range(6)),  # as many as the trace has
    3000,
    1300,
)
CODE = Setting(
    "code",
    "Azure code as recorded, Llama-3-8B on H100",
    "code",
    H100,
    (
        *(0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.22, 0.25, 0.28),
        *(0.32, 0.36, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0),
    ),
    (0.05, 0.3, 0.5),
    0.1,
    tuple(range(5)),  # as many as the trace has
    1500,
    1300,
)
POISSON = Setting(
    "codepoisson",
    "Azure code lengths, Poisson arrivals, Llama-3-8B on H100",
    "code-poisson",
    H100,
    LADDER,
    (0.2, 0.5),
    0.9,
    EIGHT,
    4500,
    2000,
)
MIXED = Setting(
    "mixed",
    "chats, code and summaries with targets of their own, Llama-3-8B on H100",
    "mixed",
    H100,
    LADDER,
    (0.3,),
    0.9,
    EIGHT,
    4500,
    2000,
)
STEPPED = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)  # loads at which the mix is looked at class by class
SHAREGPT = Setting(
    "sharegpt",
    "ShareGPT lengths, OPT-13B on A100 with 12 GB of KV",
    "sharegpt-poisson",
    "opt-13b-a100",
    (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2),
    (0.3, 0.5),
    0.5,
    (0,),
)
MOONCAKE = Setting(
    "mooncake",
    "Mooncake conversations, Llama-3.1-8B on H100",
    "mooncake",
    "llama-3-8b-h100-long",
    (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2),
    (0.3, 0.5),
    0.5,
    (0,),
    600,
)
LARGE = Setting(
    "conv70b",
    "Azure conversation as recorded, Llama-3-70B on four H100",
    "conversation",
    "llama-3-70b-h100",
    (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2),
    (0.3, 0.5),
    0.5,
    (0,),
)
SWEPT = (CONVERSATION, CODE, POISSON, MIXED)
SETTINGS = (*SWEPT, SHAREGPT, MOONCAKE, LARGE)
SLO = {
    "mixed": "",
    "kvmixed": "",
    "sharegpt": "slow",
    "mooncake": "slow",
}  # of the service; the others': TTFT 1 s, TPOT 50 ms
RIVALS = ("Orca", "FastServe", "Sarathi")
FEW = 1500  # requests at most where the policy's own goodput is not looked for
BESIDE = tuple(replace(each, requests=min(each.requests, FEW), seeds=(0,)) for each in SETTINGS)
"""For latencies, and light loads."""
DOUBTED = (
    (replace(CODE, seeds=(0,)), 0.14),
    (replace(MIXED, requests=FEW, seeds=(0,)), 0.9),
)  # put to the grid
KV_MIXED = replace(
    MIXED,
    key="kvmixed",
    name="chats, code and summaries with targets of their own, Llama-3-8B on H100 with 8 GiB of KV",
    engine="llama-3-8b-h100-8gib",
)
PARTS = replace(MIXED, requests=2000, seeds=(0,), point=1.0)
PARTS_SHORT_OF_KV = replace(KV_MIXED, requests=2000, seeds=(0,), point=1.1)
"""Where ablations and other systems are compared; on the second KV binds, as it does in the paper."""
COMPARED = ("stock", "accelgen", "default")  # both tuned, and AccelGen on an engine with default settings
WORST = "own_worst"  # attainment of the class of the mix that has the lowest
PUBLISHED: Mapping[str, Any] = {"selection": "NearestFit", "preemption": "Always", "skipping": True}
"""The paper's Algorithms 1 and 2 and its skipping; ageing is ours and off."""


def slo_of(workload_key: str) -> str:
    """Return the service's targets on this setting, of `engine.SLOS`."""
    return SLO.get(workload_key, "ttft_tpot")


def target_of(setting: Setting) -> str:
    """Return what attainment is of: the service's targets, or those of each request."""
    return slo_of(setting.key) or "own"


def targets_of(setting: Setting) -> list[str]:
    """Return what goodputs are of; where classes have targets of their own also the worst class's."""
    target = target_of(setting)
    return [target, WORST] if target == "own" else [target]


def accelgen(setting: Setting, *, patience: int | None = None, **methods: Any) -> Kind:
    """Make AccelGen with the service's targets and these methods; the engine predicts lengths."""
    parameters = () if patience is None else (("patience", patience),)
    chosen = tuple(sorted(methods.items()))
    return lambda case: replace(
        case, policy="AccelGen", slo=slo_of(setting.key), parameters=parameters, methods=chosen
    )


def published(setting: Setting, **methods: Any) -> Kind:
    """Make AccelGen by the paper's algorithms; `methods` for those of its ablations."""
    return accelgen(setting, patience=0, **{**PUBLISHED, **methods})


def with_engine_budget(kind: Kind) -> Kind:
    """Return this kind with the engine's own step budget."""
    return lambda case: replace(kind(case), budget_mode="Engine")


def ablations(setting: Setting) -> dict[str, Kind]:
    """Make AccelGen without each of its methods, ours and the paper's."""
    return {
        "/Order": accelgen(setting, ordering=False),
        "/Chunk": with_engine_budget(accelgen(setting, exclusive=False)),
        "/Batch": accelgen(setting, selection="MostUrgent"),
        "Algorithm 2": accelgen(setting, selection="NearestFit"),
        "Algorithm 1": accelgen(setting, preemption="Always"),
        "without preemption": accelgen(setting, preemption="Never"),
        "with skipping": accelgen(setting, skipping=True),
        "nobody moved ahead": accelgen(setting, patience=0),
        "budget of the engine": with_engine_budget(accelgen(setting)),
        "as published": published(setting),
        "as published, without preemption": published(setting, preemption="Never"),
        "as published, /Order": published(setting, ordering=False),
        "as published, /Chunk": with_engine_budget(published(setting, exclusive=False)),
        "as published, /Batch": published(setting, selection="MostUrgent"),
    }


def wanted() -> dict[Wanted, tuple[Setting, Kind]]:
    """List whose engine settings are tuned: stock's and AccelGen's, for each workload and target."""
    return {
        Wanted(each.key, who, f"{tuning.MET}{target}"): (each, kind)
        for each in SWEPT
        for target in targets_of(each)
        for who, kind in (("stock", comparison.stock), ("accelgen", accelgen(each)))
    }


def tuned(setting: Setting, who: str, target: str, tunings: Tunings) -> Kind:
    """Return `stock` or `accelgen` with the engine settings that did best for the target."""
    kind = comparison.stock if who == "stock" else accelgen(setting)
    return tuning.tuned(kind, tunings[Wanted(setting.key, who, f"{tuning.MET}{target}")])


def kinds(setting: Setting, target: str, tunings: Tunings) -> dict[str, Kind]:
    """Return what goodputs are of, by the names in `COMPARED`."""
    tuned_ones = [tuned(setting, who, target, tunings) for who in ("stock", "accelgen")]
    return dict(zip(COMPARED, (*tuned_ones, accelgen(setting)), strict=True))


def searches(tunings: Tunings) -> dict[tuple[str, str, str, int], Search[Goodput]]:
    """List the goodputs that are looked for, by setting, target, kind and seed."""
    return {
        (each.key, target, name, seed): search.goodput(
            each.loads, partial(each.case, seed=seed), kind, target
        )
        for each in SWEPT
        for target in targets_of(each)
        for name, kind in kinds(each, target, tunings).items()
        for seed in each.seeds
    }


def everything(tunings: Tunings) -> list[Case]:
    """List all runs of the study of AccelGen beside the searches."""
    made = [case for each in BESIDE for load in beside(each) for case in pair(each, load)]
    made += comparison.sweep(one_seed(MIXED), classes(tunings).values(), STEPPED)
    for each in (PARTS, PARTS_SHORT_OF_KV):
        compared = [
            comparison.stock,
            accelgen(each),
            *ablations(each).values(),
            *map(comparison.other, RIVALS),
        ]
        made += comparison.sweep(each, compared, [each.point])
    for each in SWEPT:
        made += comparison.watermarks(one_seed(each), tuned(each, "stock", target_of(each), tunings))
    made += [case for _, cases in doubted(tunings) for stock, ours in cases for case in (stock, ours)]
    return list(dict.fromkeys(made))


def one_seed(setting: Setting) -> Setting:
    """Return the setting with its first seed alone."""
    return replace(setting, seeds=setting.seeds[:1])


def classes(tunings: Tunings) -> dict[str, Kind]:
    """List what is looked at class by class on the mix."""
    return {
        "stock, tuned for all": tuned(MIXED, "stock", "own", tunings),
        "stock, tuned for the worst class": tuned(MIXED, "stock", WORST, tunings),
        "AccelGen": accelgen(MIXED),
        "AccelGen, tuned for the worst class": tuned(MIXED, "accelgen", WORST, tunings),
    }


def doubted(tunings: Tunings) -> Iterator[tuple[str, list[tuple[Case, Case]]]]:
    """Yield tuned stock and AccelGen, by workload, at each corner of the cost model's doubt."""
    for setting, load in DOUBTED:
        stock = tuned(setting, "stock", target_of(setting), tunings)
        cases = [doubt(setting.case(load, 0)) for doubt in CORNERS]
        yield setting.at(load), [(stock(case), accelgen(setting)(case)) for case in cases]


def beside(setting: Setting) -> list[float]:
    """Loads at which latencies are looked at: light ones, and the setting's point."""
    return sorted({*setting.others, setting.point})


def pair(setting: Setting, load: float) -> list[Case]:
    """Return default stock and AccelGen, one seed."""
    return [comparison.runs(setting, load, kind, 1)[0] for kind in (comparison.stock, accelgen(setting))]
