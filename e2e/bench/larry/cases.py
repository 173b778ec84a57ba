"""What the study of LARRY runs: workloads, loads, settings and policies, each a `Case`."""

from collections.abc import Iterable
from dataclasses import replace

from e2e.bench.runs.engine import GRID, TUNED, Case
from e2e.bench.runs.setting import Setting
from headrace_engine.policies.larry import Params

SMALL = 1024  # tokens of the small step budget
DEFAULTS = Params()
PATIENCES = (50, 100, 130, 150, 200, 300, 0)  # percent; 0 is the paper's form
ALPHAS = (0, 10, 100, 1000)
BASELINES = ("NoPreempt", "SPF", "SRPT", "TRAIL")


H100 = "llama-3-8b-h100"
CODE = Setting(
    "code",
    "Azure code as recorded, Llama-3-8B on H100",
    "code",
    H100,
    (0.05, 0.1, 0.15, 0.2, 0.3, 0.7, 0.9),
    (0.5, 0.8, 1.0, 1.1),
    0.7,
)
POISSON = Setting(
    "codepoisson",
    "Azure code lengths, Poisson arrivals, Llama-3-8B on H100",
    "code-poisson",
    H100,
    (0.3, 0.5, 0.6, 0.7, 0.8, 0.9),
    (1.0, 1.1),
    0.9,
)
CONVERSATION = Setting(
    "conv",
    "Azure conversation as recorded, Llama-3-8B on H100",
    "conversation",
    H100,
    (0.7, 0.8, 0.9, 0.95, 1.0),
    (0.3, 1.1),
    1.0,
    requests=1200,
)
SHAREGPT = Setting(
    "sharegpt",
    "ShareGPT lengths, OPT-13B on A100 with 12 GB of KV",
    "sharegpt-poisson",
    "opt-13b-a100",
    (),
    (0.7, 0.9, 1.0, 1.1),
    1.0,
    (0, 1),
    1200,
)
LLAMA13 = Setting(
    "sharegpt13b",
    "ShareGPT lengths, Llama-2-13B on A100",
    "sharegpt-poisson",
    "llama-2-13b-a100",
    (),
    (0.7, 0.9, 1.0),
    1.0,
    (0,),
)
CODE_A100 = Setting(
    "codea100",
    "Azure code as recorded, Llama-3-8B on A100",
    "code",
    "llama-3-8b-a100",
    (),
    (0.1, 0.3, 0.7, 0.9),
    0.7,
    (0, 1),
)
SWEPT = (CODE, POISSON, CONVERSATION)  # with goodput and tuned stock
SHORT_OF_KV = (SHAREGPT, LLAMA13)  # stock and LARRY are run with a watermark too, but with one budget
SETTINGS = (*SWEPT, CODE_A100, *SHORT_OF_KV)
BOUNDED = (CODE, POISSON)  # where aims are held against LARRY without ageing, and against foresight


def larry(case: Case, step_budget: int = 0, patience: int | None = None, alpha: int | None = None) -> Case:
    """Return `case` with LARRY; parameters that are not given stay at their defaults."""
    given = {"patience": patience, "alpha": alpha}
    parameters = tuple(
        (key, value) for key, value in given.items() if value not in (None, getattr(DEFAULTS, key))
    )
    return replace(case, policy="LARRY", parameters=parameters, step_budget=step_budget)


def paper(case: Case, step_budget: int = 0) -> Case:
    """Return `case` with LARRY as its paper has it."""
    return larry(case, step_budget, patience=0)


def srpt(case: Case, step_budget: int = 0) -> Case:
    """Return `case` with the shortest remaining time first, true lengths known."""
    return replace(case, policy="SRPT", step_budget=step_budget)


def tuned(case: Case) -> list[Case]:
    """Return `case` with each setting that tuned stock may take; the first is the default."""
    return [replace(case, budget=budget, watermark=watermark) for budget, watermark in TUNED]


def points(setting: Setting, loads: Iterable[float] | None = None) -> list[Case]:
    """Return stock at these loads, by default all, with each seed."""
    chosen = setting.all_loads() if loads is None else loads
    return [setting.case(load, seed) for load in chosen for seed in setting.seeds]


def sweep(setting: Setting) -> list[Case]:
    """List stock and LARRY, default and paper, over all loads; tuned stock over the loads of the sweep."""
    cases = []
    for case in points(setting):
        cases += [case, larry(case), paper(case)]
        if setting in SWEPT:
            cases += [larry(case, SMALL), replace(case, budget=SMALL)]
        elif setting in SHORT_OF_KV:
            cases += [replace(each, watermark=0.05) for each in (case, larry(case))]
        if case.load in setting.loads:
            cases += tuned(case)
    return list(dict.fromkeys(cases))


def bounds(setting: Setting) -> list[Case]:
    """List what LARRY without ageing and what foresight reach, with both budgets, at loads up to 0.9."""
    return [
        make(case, budget)
        for case in points(setting)
        if case.load <= 0.9
        for make in (paper, srpt)
        for budget in (0, SMALL)
    ]


def ageing(setting: Setting) -> list[Case]:
    """Return stock, and LARRY with each patience, where ageing is looked at."""
    return [
        each
        for case in points(setting, [setting.point])[:2]
        for each in (case, *(larry(case, patience=patience) for patience in PATIENCES))
    ]


def alphas(setting: Setting) -> list[Case]:
    """Return stock, and LARRY with each alpha, with and without ageing."""
    case = setting.case(setting.point, 0)
    aged = [larry(case, alpha=alpha) for alpha in ALPHAS]
    return [case, *aged, *(larry(case, alpha=alpha, patience=0) for alpha in ALPHAS)]


def rivals(setting: Setting) -> list[Case]:
    """List stock, LARRY and the simulator's baselines, with the engine's step budget and the small one."""
    case = setting.case(setting.point, 0)
    own = [larry(case, budget) for budget in (0, SMALL)]
    others = [replace(case, policy=name, step_budget=budget) for name in BASELINES for budget in (0, SMALL)]
    return [case, replace(case, budget=SMALL), *own, *others]


FINDINGS = ((CODE, 0.7), (POISSON, 0.9), (CONVERSATION, 1.0), (SHAREGPT, 1.0))
"""Where LARRY's mean TTFT is compared with stock's over the grid of doubts."""
GOODPUT_CLAIM = (CODE, 0.1)
"""Where LARRY with the small budget is compared with stock by attainment of E2E over the grid."""


def doubted() -> list[Case]:
    """Return the findings at each point of the grid."""
    cases = []
    for mixed, overhead in GRID:
        for setting, load in FINDINGS:
            case = replace(setting.case(load, 0), mixed=mixed, overhead_ms=overhead)
            cases += [case, larry(case)]
        setting, load = GOODPUT_CLAIM
        case = replace(setting.case(load, 0), mixed=mixed, overhead_ms=overhead)
        cases += [case, replace(case, budget=SMALL), larry(case, SMALL)]
    return cases


def synchronous() -> list[Case]:
    """Return stock and LARRY on engines that plan one step at a time."""
    cases = [replace(each, sync=True) for each in points(CODE, (0.3, 0.7))]
    return [each for case in cases for each in (case, larry(case))]


def everything() -> list[Case]:
    """List all runs of the study, each once."""
    cases = [*doubted(), *synchronous()]
    for setting in SETTINGS:
        cases += [*sweep(setting), *ageing(setting)]
    for setting in BOUNDED:
        cases += bounds(setting)
    for setting in (CODE, POISSON, CONVERSATION, SHAREGPT):
        cases += [*alphas(setting), *rivals(setting)]
    return list(dict.fromkeys(cases))
