"""What the study of LARRY runs: workloads, loads, engine settings and policies, each a `Case`."""

from collections.abc import Iterable
from dataclasses import replace

from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Kind
from e2e.bench.runs.doubt import GRID
from e2e.bench.runs.engine import Case
from e2e.bench.runs.setting import Setting
from e2e.bench.runs.tuning import Tunings, Wanted
from headrace_engine.policies.larry import Params

DEFAULTS = Params()
PATIENCES = (50, 100, 130, 150, 200, 300, 0)  # percent; 0 is the paper's form
ALPHAS = (0, 10, 100, 1000)
BASELINES = ("NoPreempt", "SPF", "SRPT", "TRAIL")
TARGET = "e2e"  # of `engine.TARGETS`: E2E within 5x alone
LATENCY, GOODPUT = "ttft_mean", f"{tuning.MET}{TARGET}"  # what engine settings are tuned for


H100 = "llama-3-8b-h100"
CODE = Setting(
    "code",
    "Azure code as recorded, Llama-3-8B on H100",
    "code",
    H100,
    (0.05, 0.1, 0.15, 0.2, 0.3, 0.7, 0.9),
    (0.5, 0.8, 1.0, 1.1),
    0.7,
    tuple(range(5)),  # as many as the trace has
    1500,
    1300,
)
POISSON = Setting(
    "codepoisson",
    "Azure code lengths, Poisson arrivals, Llama-3-8B on H100",
    "code-poisson",
    H100,
    (0.3, 0.5, 0.6, 0.7, 0.8, 0.9),
    (1.0, 1.1),
    0.9,
    tuple(range(8)),
    2000,
    2000,
)
CONVERSATION = Setting(
    "conv",
    "Azure conversation as recorded, Llama-3-8B on H100",
    "conversation",
    H100,
    (0.7, 0.8, 0.9, 0.95, 1.0),
    (0.3, 1.1),
    0.95,
    tuple(range(6)),  # as many as the trace has
    3000,
    1300,
)
SHAREGPT = Setting(
    "sharegpt",
    "ShareGPT lengths, OPT-13B on A100 with 12 GB of KV",
    "sharegpt-poisson",
    "opt-13b-a100",
    (),
    (0.7, 0.9, 1.0, 1.1),
    1.0,
    tuple(range(4)),
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
    1500,
)
SWEPT = (CODE, POISSON, CONVERSATION)  # with goodput
SHORT_OF_KV = (SHAREGPT, LLAMA13)  # where a watermark is tuned too
SETTINGS = (*SWEPT, CODE_A100, *SHORT_OF_KV)
COMPARED = (CODE, POISSON, CONVERSATION, SHAREGPT)  # with other policies, and with each alpha
TUNED = ("stock", "larry")


def larry(case: Case, patience: int | None = None, alpha: int | None = None) -> Case:
    """Return `case` with LARRY; parameters that are not given stay at their defaults."""
    given = {"patience": patience, "alpha": alpha}
    parameters = tuple(
        (key, value) for key, value in given.items() if value not in (None, getattr(DEFAULTS, key))
    )
    return replace(case, policy="LARRY", parameters=parameters)


def paper(case: Case) -> Case:
    """Return `case` with LARRY as its paper has it."""
    return larry(case, patience=0)


def srpt(case: Case) -> Case:
    """Return `case` with the shortest remaining time first, true lengths known."""
    return replace(case, policy="SRPT")


def wanted() -> dict[Wanted, tuple[Setting, Kind]]:
    """List whose engine settings are tuned: stock's and LARRY's, for mean TTFT and, if swept, goodput."""
    aims = [(each, LATENCY) for each in SETTINGS] + [(each, GOODPUT) for each in SWEPT]
    return {
        Wanted(setting.key, who, aim): (setting, kind)
        for setting, aim in aims
        for who, kind in zip(TUNED, (comparison.stock, larry), strict=True)
    }


def kinds(setting: Setting, tunings: Tunings) -> dict[str, Kind]:
    """Return what is run at all loads, by name; the tuned for the least mean TTFT."""
    made: dict[str, Kind] = {"stock": comparison.stock, "LARRY": larry, "paper": paper}
    for who, name in zip(TUNED, ("stock", "LARRY"), strict=True):
        made[f"tuned {name}"] = tuning.tuned(made[name], tunings[Wanted(setting.key, who, LATENCY)])
    return made


def carrying(setting: Setting, tunings: Tunings) -> dict[str, Kind]:
    """Return what goodputs are of, by name; the tuned for the highest."""
    made: dict[str, Kind] = {"stock": comparison.stock, "LARRY": larry}
    for who, name in zip(TUNED, list(made), strict=True):
        made[f"tuned {name}"] = tuning.tuned(made[name], tunings[Wanted(setting.key, who, GOODPUT)])
    return made


def points(setting: Setting, loads: Iterable[float] | None = None) -> list[Case]:
    """Return stock at these loads, by default all, with each seed."""
    return comparison.sweep(setting, [comparison.stock], loads)


def ageing(setting: Setting) -> list[Case]:
    """Return stock, and LARRY with each patience, where ageing is looked at."""
    return [
        each
        for case in points(setting, [setting.point])
        for each in (case, *(larry(case, patience=patience) for patience in PATIENCES))
    ]


def alphas(setting: Setting) -> list[Case]:
    """Return stock, and LARRY with each alpha, with and without ageing."""
    case = setting.case(setting.point, 0)
    aged = [larry(case, alpha=alpha) for alpha in ALPHAS]
    return [case, *aged, *(larry(case, alpha=alpha, patience=0) for alpha in ALPHAS)]


def rivals(setting: Setting, tunings: Tunings) -> dict[str, Case]:
    """Return one seed of stock, LARRY and the simulator's baselines, on default engines and tuned stock's."""
    case = setting.case(setting.point, 0)
    best = tunings[Wanted(setting.key, "stock", LATENCY)]
    made = {"LARRY": larry(case), **{name: replace(case, policy=name) for name in BASELINES}}
    return {
        "stock": case,
        "tuned stock": best(case),
        **made,
        **{f"{name}, as tuned stock": best(each) for name, each in made.items()},
    }


FINDINGS = ((CODE, 0.7), (POISSON, 0.9), (CONVERSATION, 0.95), (SHAREGPT, 1.0))
"""Where tuned LARRY's mean TTFT is compared with tuned stock's over the grid of doubts."""
GOODPUT_CLAIM = (CODE, 0.1)
"""Where they are compared by attainment of E2E over the grid, tuned for goodput."""


def doubted(tunings: Tunings) -> dict[str, list[tuple[Case, Case]]]:
    """Return LARRY and stock, both tuned, by finding, at each point of the grid; one seed."""
    compared = {
        **{f"ttft_mean_{each.at(load)}": (each, load, kinds(each, tunings)) for each, load in FINDINGS},
        f"missed_e2e_{CODE.at(GOODPUT_CLAIM[1])}": (*GOODPUT_CLAIM, carrying(CODE, tunings)),
    }
    return {
        name: [
            (named["tuned LARRY"](case), named["tuned stock"](case))
            for case in [doubt(setting.case(load, 0)) for doubt in GRID]
        ]
        for name, (setting, load, named) in compared.items()
    }


def synchronous() -> list[Case]:
    """Return stock on engines that plan one step at a time."""
    return [replace(each, sync=True) for each in points(CODE, (0.7,))]


def everything(tunings: Tunings) -> list[Case]:
    """List all runs of the study, each once."""
    cases = [case for pairs in doubted(tunings).values() for pair in pairs for case in pair]
    cases += [each for case in synchronous() for each in (case, larry(case))]
    for setting in SETTINGS:
        cases += [*comparison.sweep(setting, kinds(setting, tunings).values()), *ageing(setting)]
    for setting in SWEPT:
        cases += comparison.sweep(setting, carrying(setting, tunings).values(), setting.loads)
        cases += comparison.watermarks(
            replace(setting, seeds=(0,)), carrying(setting, tunings)["tuned stock"]
        )
    cases += comparison.sweep(CODE, [srpt], foreseen())
    for setting in COMPARED:
        cases += [*alphas(setting), *rivals(setting, tunings).values()]
    return list(dict.fromkeys(cases))


def foreseen() -> list[float]:
    """Return the loads of code at which aims are held against foresight."""
    return [load for load in CODE.all_loads() if 0.1 <= load <= 0.7]
