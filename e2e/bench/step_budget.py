"""LARRY with step budget SLO against LARRY with the best fixed budget, on every workload.

Nobody told it which one that is. Attainment is of TTFT 1 s and TBT 50 ms together, or of the setting's own
targets; loads are of what default stock sustains.
"""

from collections.abc import Sequence
from dataclasses import replace

from e2e.bench import accelgen_cases as cases
from e2e.bench import report, results, study, versus
from e2e.bench.accelgen_cases import FIXED, Compared, larry
from e2e.bench.cases import Case, measure
from e2e.bench.larry_cases import Setting
from e2e.bench.report import Cell
from e2e.bench.versus import Found

COMMAND = "python -m e2e.bench.step_budget"


def main() -> None:
    """Run the study."""
    run(study.options(__doc__))


def run(options: study.Options) -> None:
    """Simulate what is missing, then write figures and page."""
    compared: Sequence[Compared] = cases.BUDGETED
    if options.quick:
        tiny = replace(cases.CODE, requests=100)
        compared = (Compared(tiny, (0.1, 0.2)),)
    found = measure(everything(compared), "step budgets", options.workers)
    made = figures(found, compared)
    print(results.write("step_budget", COMMAND, made, simulated=True, folder=options.folder))
    print(report.page("step_budget", "Step budget SLO", page(found, compared), folder=options.folder))


def everything(compared: Sequence[Compared]) -> list[Case]:
    """One seed each."""
    return [
        case
        for each in compared
        for load in each.loads
        for tokens in (0, *FIXED)
        for case in versus.runs(each.setting, load, larry(each.setting, tokens), 1)
    ]


def figures(found: Found, compared: Sequence[Compared]) -> dict[str, float]:
    """What `step_budget.json` holds."""
    made = {}
    for each in compared:
        made[f"larry_slo_vs_best_fixed_{each.setting.key}"] = _goodput(found, each, 0) / max(
            _goodput(found, each, tokens) for tokens in FIXED
        )
        made[f"larry_slo_vs_best_fixed_attainment_{each.setting.key}"] = min(
            _attained(found, each.setting, load, 0)
            / max(_attained(found, each.setting, load, tokens) for tokens in FIXED)
            for load in each.loads
        )
    for end in ("", "_attainment"):
        made[f"larry_slo_vs_best_fixed_worst{end}"] = min(
            made[f"larry_slo_vs_best_fixed{end}_{each.setting.key}"] for each in compared
        )
    return {key: round(value, 3) for key, value in made.items()}


def page(found: Found, compared: Sequence[Compared]) -> str:
    """Attainment of each budget."""
    rows: list[Sequence[Cell]] = []
    for each in compared:
        for load in each.loads:
            shares = [_attained(found, each.setting, load, tokens) for tokens in (0, *FIXED)]
            rows.append((f"{each.setting.name}: {load:g}", *(f"{share:.1%}" for share in shares)))
    note = (
        "LARRY, one seed: requests that met TTFT 1 s and TBT 50 ms (ShareGPT lengths and Mooncake: 10 s "
        "and 100 "
        "ms; the mix: their own). The figures are the worst, over workloads, of SLO / the best fixed "
        "budget: of "
        "the load with 90 % attainment, within these loads, and of attainment at any of them."
    )
    return f"{report.table(('workload: load', 'SLO', *(f'{each:,}' for each in FIXED)), rows)}\n\n{note}"


def _attained(found: Found, setting: Setting, load: float, tokens: int) -> float:
    [case] = versus.runs(setting, load, larry(setting, tokens), 1)
    return max(float(found[case][f"met_{cases.target_of(setting)}"]), versus.LEAST)


def _goodput(found: Found, each: Compared, tokens: int) -> float:
    target, kind = cases.target_of(each.setting), larry(each.setting, tokens)
    return versus.goodputs(found, each.setting, target, kind, loads=each.loads, seeds=1)[0].load


if __name__ == "__main__":
    main()
