"""What the study of AccelGen and that of step budgets run: workloads, loads, settings, each a `Case`."""

from dataclasses import dataclass, replace
from typing import Any

from e2e.bench import versus
from e2e.bench.cases import Case
from e2e.bench.larry_cases import Setting
from e2e.bench.versus import Kind

H100 = "llama-3-8b-h100"
CONVERSATION = Setting(
    "conv",
    "Azure conversation as recorded, Llama-3-8B on H100",
    "conversation",
    H100,
    (0.8, 0.9, 1.0, 1.1, 1.2),
    (0.3, 0.5),
    1.0,
    (0,),
    1500,
)
CODE = Setting(
    "code",
    "Azure code as recorded, Llama-3-8B on H100",
    "code",
    H100,
    (0.03, 0.05, 0.1, 0.15, 0.2, 0.3),
    (),
    0.1,
    (0, 1),
    1500,
)
POISSON = Setting(
    "codepoisson",
    "Azure code lengths, Poisson arrivals, Llama-3-8B on H100",
    "code-poisson",
    H100,
    (0.4, 0.6, 0.7, 0.8, 0.9, 1.0),
    (0.2,),
    0.9,
    (0, 1),
    1500,
)
MIXED = Setting(
    "mixed",
    "chats, code and summaries with targets of their own, Llama-3-8B on H100",
    "mixed",
    H100,
    (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1),
    (0.3,),
    0.9,
    (0, 1),
    1200,
)
SHAREGPT = Setting(
    "sharegpt",
    "ShareGPT lengths, OPT-13B on A100 with 12 GB of KV",
    "sharegpt-poisson",
    "opt-13b-a100",
    (),
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
    (),
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
    (),
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
}  # of the service; the others': TTFT 1 s, TBT 50 ms
RIVALS = ("Orca", "FastServe", "Sarathi")
CORNERS = ((1.0, 3.0), (1.8, 0.0), (1.8, 3.0))  # of the grid of doubts; the fourth is the sweep itself
DOUBTED = ((CODE, 0.1), (MIXED, 0.9))  # claims that are put to it


def slo_of(workload_key: str) -> str:
    """The service's targets on this setting, of `cases.SLOS`."""
    return SLO.get(workload_key, "ttft_tbt")


def target_of(setting: Setting) -> str:
    """What attainment is of: the service's targets, or those of each request."""
    return slo_of(setting.key) or "asked"


def accelgen(setting: Setting, **parameters: Any) -> Kind:
    """AccelGen with the service's targets; lengths are predicted by the engine."""
    given = tuple(sorted(parameters.items()))
    return lambda case: replace(case, policy="AccelGen", slo=slo_of(setting.key), parameters=given)


def ablations() -> dict[str, Kind]:
    """AccelGen without each of its methods, on the mix."""
    whole = accelgen(MIXED)
    return {
        "/Order": accelgen(MIXED, ordering=False),
        "/Chunk": lambda case: replace(accelgen(MIXED, exclusive=False)(case), budget_mode="Engine"),
        "/Batch": accelgen(MIXED, selection="MostUrgent"),
        "Algorithm 2": accelgen(MIXED, selection="NearestFit"),
        "without preemption": accelgen(MIXED, preemption=False),
        "with skipping": accelgen(MIXED, skipping=True),
        "nobody moved ahead": accelgen(MIXED, patience=0),
        "budget of the engine": lambda case: replace(whole(case), budget_mode="Engine"),
    }


def other(policy: str) -> Kind:
    """One of the simulator's baselines."""
    return lambda case: replace(case, policy=policy)


def everything() -> list[Case]:
    """All runs of the study of AccelGen."""
    made = [case for each in SWEPT for case in versus.sweep(each, (accelgen(each),))]
    made += [case for each in SETTINGS for case in versus.sweep(each, (accelgen(each),), tuned=False)]
    kinds = [*ablations().values(), *map(other, RIVALS)]
    made += [versus.runs(MIXED, MIXED.point, kind, 1)[0] for kind in kinds]
    for mixed, overhead in CORNERS:
        for setting, load in DOUBTED:
            case = replace(setting.case(load, 0), mixed=mixed, overhead_ms=overhead)
            made += [kind(case) for kind in (*versus.choices(setting), accelgen(setting))]
    return list(dict.fromkeys(made))


@dataclass(frozen=True, slots=True)
class Compared:
    """Where step budgets are compared."""

    setting: Setting
    loads: tuple[float, ...]


BUDGETED = (
    Compared(CONVERSATION, (0.8, 1.0, 1.1)),
    Compared(CODE, (0.03, 0.1, 0.2)),
    Compared(POISSON, (0.6, 0.8, 1.0)),
    Compared(MIXED, (0.6, 0.8, 1.0)),
    Compared(SHAREGPT, (0.8, 0.9, 1.0)),
    Compared(MOONCAKE, (0.4, 0.6, 0.8)),
    Compared(LARGE, (0.7, 0.9, 1.0)),
)
FIXED = (512, 1024, 2048, 8192)  # tokens


def larry(setting: Setting, tokens: int = 0) -> Kind:
    """LARRY with a fixed budget; 0: with mode SLO."""
    mode = "" if tokens else "SLO"
    return lambda case: replace(
        case, policy="LARRY", slo=slo_of(setting.key), step_budget=tokens, budget_mode=mode
    )
