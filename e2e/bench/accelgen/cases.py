"""What the study of AccelGen and that of step budgets run: workloads, loads, settings, each a `Case`."""

from dataclasses import replace
from typing import Any

from e2e.bench.runs import comparison, search
from e2e.bench.runs.comparison import Kind
from e2e.bench.runs.engine import Case
from e2e.bench.runs.search import Search
from e2e.bench.runs.setting import Setting
from headrace_engine.sim.metrics import Goodput

H100 = "llama-3-8b-h100"
CONVERSATION = Setting(
    "conv",
    "Azure conversation as recorded, Llama-3-8B on H100",
    "conversation",
    H100,
    (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5),
    (0.3, 0.5),
    1.0,
    comparison.SEEDS,
    1500,
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
    comparison.SEEDS,
    1500,
)
POISSON = Setting(
    "codepoisson",
    "Azure code lengths, Poisson arrivals, Llama-3-8B on H100",
    "code-poisson",
    H100,
    (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4),
    (0.2, 0.5),
    0.9,
    comparison.SEEDS,
    1500,
)
MIXED = Setting(
    "mixed",
    "chats, code and summaries with targets of their own, Llama-3-8B on H100",
    "mixed",
    H100,
    (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5),
    (0.3,),
    0.9,
    comparison.SEEDS,
    1200,
)
STEPPED = (0.9, 1.0, 1.04, 1.06, 1.08, 1.1, 1.2)  # loads at which the mix is looked at class by class
SHAREGPT = Setting(
    "sharegpt",
    "ShareGPT lengths, OPT-13B on A100 with 12 GB of KV",
    "sharegpt-poisson",
    "opt-13b-a100",
    (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2),
    (0.3, 0.5),
    0.5,
    (0,),
    800,
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
    800,
)
SWEPT = (CONVERSATION, CODE, POISSON, MIXED)
SETTINGS = (*SWEPT, SHAREGPT, MOONCAKE, LARGE)
SLO = {
    "mixed": "",
    "sharegpt": "slow",
    "mooncake": "slow",
}  # of the service; the others': TTFT 1 s, TPOT 50 ms
RIVALS = ("Orca", "FastServe", "Sarathi")
CORNERS = ((1.0, 0.0), (1.0, 3.0), (1.8, 0.0), (1.8, 3.0))  # of the grid of doubts
FEW = 600  # requests where no goodput is looked for
BESIDE = tuple(replace(each, requests=FEW, seeds=(0,)) for each in SETTINGS)  # for latencies, and light loads
DOUBTED = ((replace(CODE, requests=FEW), 0.14), (replace(MIXED, requests=FEW), 1.0))  # put to the grid
PARTS = replace(MIXED, requests=800, point=1.0)  # where ablations and other systems are compared


def slo_of(workload_key: str) -> str:
    """Return the service's targets on this setting, of `engine.SLOS`."""
    return SLO.get(workload_key, "ttft_tpot")


def target_of(setting: Setting) -> str:
    """Return what attainment is of: the service's targets, or those of each request."""
    return slo_of(setting.key) or "own"


def accelgen(setting: Setting, *, patience: int | None = None, **methods: Any) -> Kind:
    """Make AccelGen with the service's targets and these methods; the engine predicts lengths."""
    parameters = () if patience is None else (("patience", patience),)
    chosen = tuple(sorted(methods.items()))
    return lambda case: replace(
        case, policy="AccelGen", slo=slo_of(setting.key), parameters=parameters, methods=chosen
    )


def ablations() -> dict[str, Kind]:
    """Make AccelGen without each of its methods, on the mix."""
    whole = accelgen(MIXED)
    return {
        "/Order": accelgen(MIXED, ordering=False),
        "/Chunk": lambda case: replace(accelgen(MIXED, exclusive=False)(case), budget_mode="Engine"),
        "/Batch": accelgen(MIXED, selection="MostUrgent"),
        "Algorithm 2": accelgen(MIXED, selection="NearestFit"),
        "without preemption": accelgen(MIXED, preemption="Never"),
        "with skipping": accelgen(MIXED, skipping=True),
        "nobody moved ahead": accelgen(MIXED, patience=0),
        "budget of the engine": lambda case: replace(whole(case), budget_mode="Engine"),
    }


def other(policy: str) -> Kind:
    """Return one of the simulator's baselines."""
    return lambda case: replace(case, policy=policy)


def searches() -> dict[tuple[str, str, int], tuple[str, Search[Goodput]]]:
    """List the goodputs that are looked for, by setting, `tuned` stock or `ours`, and seed."""
    made: dict[tuple[str, str, int], tuple[str, Search[Goodput]]] = {}
    for each in SWEPT:
        target, (default, *others) = target_of(each), comparison.choices(each)
        for seed in each.seeds:
            made[each.key, "tuned", seed] = target, search.best(each, seed, (*others, default))
            made[each.key, "ours", seed] = target, search.goodput(each, seed, accelgen(each))
    return made


def everything() -> list[Case]:
    """List all runs of the study of AccelGen beside the searches."""
    made = [case for each in BESIDE for load in beside(each) for case in pair(each, load)]
    for load in STEPPED:
        made += [
            comparison.runs(MIXED, load, kind, 1)[0] for kind in (*comparison.choices(MIXED), accelgen(MIXED))
        ]
    case = PARTS.case(PARTS.point, 0)
    kinds = [comparison.stock, accelgen(PARTS), *ablations().values(), *map(other, RIVALS)]
    made += [kind(case) for kind in kinds]
    for each in SWEPT:
        case = each.case(max(each.loads), 0)
        made += [case, replace(case, watermark=0.05)]
    for mixed, overhead in CORNERS:
        for setting, load in DOUBTED:
            case = replace(setting.case(load, 0), mixed=mixed, overhead_ms=overhead)
            made += [kind(case) for kind in (*comparison.choices(setting), accelgen(setting))]
    return list(dict.fromkeys(made))


def beside(setting: Setting) -> list[float]:
    """Loads at which latencies are looked at: light ones, and the setting's point."""
    return sorted({*setting.others, setting.point})


def pair(setting: Setting, load: float) -> list[Case]:
    """Return default stock and AccelGen, one seed."""
    return [comparison.runs(setting, load, kind, 1)[0] for kind in (comparison.stock, accelgen(setting))]


BUDGETED = tuple(replace(each, requests=min(each.requests, 800)) for each in SETTINGS)
"""Where step budgets are compared."""
FIXED = (2048, 1024, 8192, 512)  # tokens; the likely best first


def larry(setting: Setting, tokens: int = 0) -> Kind:
    """Return LARRY with a fixed budget; 0: with mode SLO."""
    mode = "" if tokens else "SLO"
    return lambda case: replace(
        case, policy="LARRY", slo=slo_of(setting.key), step_budget=tokens, budget_mode=mode
    )
