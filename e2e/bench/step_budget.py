"""LARRY with step budget SLO against LARRY with the best fixed budget, on every workload.

Nobody told it which one that is. Attainment is of TTFT 1 s and TPOT 50 ms together, or of the setting's own
targets; loads are of what default stock sustains. One seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from e2e.bench.accelgen import cases
from e2e.bench.report import markdown, results
from e2e.bench.report.markdown import Cell
from e2e.bench.runs import comparison, search, tuning
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.comparison import Found, Kind
from e2e.bench.runs.engine import DEFAULT_BUDGET, Case, measure
from e2e.bench.runs.search import Measure
from e2e.bench.runs.setting import Setting
from headrace_engine.sim.metrics import Goodput

COMMAND = "python -m e2e.bench.step_budget"
SLO = 0  # in place of tokens
FIXED = tuning.likely_first(budget for budget in tuning.BUDGETS if budget <= DEFAULT_BUDGET)
"""Tokens. Which of them is best is seen afterwards, in the very runs that are compared."""
Goodputs = Mapping[tuple[str, str], Goodput]


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(options: Options) -> None:
    """Simulate what is missing, then write figures and page."""
    settings: Sequence[Setting] = cases.BESIDE
    if options.quick:
        settings = (replace(cases.CODE, requests=100, loads=(0.1, 0.2)),)
    found, goodputs = collect(
        partial(measure, title="step budgets", workers=options.workers), settings, options.quick
    )
    made = figures(found, goodputs, settings)
    print(results.write("step_budget", COMMAND, made, simulated=True, folder=options.folder))
    told = page(found, goodputs, settings)
    print(markdown.page("step_budget", "Step budget SLO", told, folder=options.folder))


def collect(measured: Measure, settings: Sequence[Setting], quick: bool = False) -> tuple[Found, Goodputs]:
    """Run the study; also returns each setting's goodput with `slo` and with the best `fixed` budget."""
    searches = {}
    for each in settings:
        fixed = [larry(each, tokens) for tokens in FIXED]
        for name, kinds in (("slo", [larry(each)]), ("fixed", fixed[:1] if quick else fixed)):
            at = partial(each.case, seed=0)
            searches[each.key, name] = search.best(each.loads, at, kinds, cases.target_of(each))
    best, found = search.run(searches, measured)
    goodputs = {key: goodput for key, (goodput, _) in best.items()}
    beside = [case for each in settings for case in table_of(each, goodputs)]
    return {**found, **measured(beside)}, goodputs


def larry(setting: Setting, tokens: int = SLO) -> Kind:
    """Return LARRY with a fixed budget, or with mode SLO."""
    mode = "" if tokens else "SLO"
    return lambda case: replace(
        case, policy="LARRY", slo=cases.slo_of(setting.key), step_budget=tokens, budget_mode=mode
    )


def load_of(setting: Setting, goodputs: Goodputs) -> float:
    """Return where all are compared: the highest load at which SLO keeps the targets, else the lowest."""
    found = goodputs[setting.key, "slo"]
    return max((load for load in setting.loads if load <= found.load), default=setting.loads[0])


def table_of(setting: Setting, goodputs: Goodputs) -> list[Case]:
    """List SLO, then each fixed budget, at the load where all are compared."""
    case = setting.case(load_of(setting, goodputs), 0)
    return [larry(setting, tokens)(case) for tokens in (SLO, *FIXED)]


def figures(found: Found, goodputs: Goodputs, settings: Sequence[Setting]) -> dict[str, float]:
    """Return what `step_budget.json` holds."""
    made: dict[str, float] = {}
    for each in settings:
        compared = comparison.ratio_of([goodputs[each.key, "slo"]], [goodputs[each.key, "fixed"]])
        made |= comparison.keyed(f"larry_slo_vs_best_fixed_{each.key}", compared)
        slo, *fixed = _attained(found, each, goodputs)
        made[f"larry_slo_vs_best_fixed_attainment_{each.key}"] = slo / max(fixed)
    for end in ("", "_attainment"):
        names = [f"larry_slo_vs_best_fixed{end}_{each.key}" for each in settings]
        made[f"larry_slo_vs_best_fixed_worst{end}"] = min(made[name] for name in names if name in made)
    return {key: round(value, 3) for key, value in made.items()}


def page(found: Found, goodputs: Goodputs, settings: Sequence[Setting]) -> str:
    """Write the page: goodput, and attainment with each budget."""
    rows: list[Sequence[Cell]] = []
    for each in settings:
        shares = (f"{share:.1%}" for share in _attained(found, each, goodputs))
        sustained = (comparison.loads_of([goodputs[each.key, name]]) for name in ("slo", "fixed"))
        rows.append((each.name, each.requests, *sustained, f"{load_of(each, goodputs):g}", *shares))
    note = (
        "LARRY, one seed. Goodput: load up to which 90 % of the requests meet TTFT 1 s and TPOT 50 ms "
        "(ShareGPT lengths and Mooncake: 10 s and 100 ms; the mix: their own), found by bisection, of SLO "
        "and of the best fixed budget. Then who met them at the load named, with each budget."
    )
    budgets = (f"{each:,}" for each in FIXED)
    header = ("workload", "requests", "goodput: SLO", "best fixed", "at load", "SLO", *budgets)
    return f"{comparison.LOAD_ONE} {comparison.STEADY}\n\n{markdown.table(header, rows)}\n\n{note}"


def _attained(found: Found, setting: Setting, goodputs: Goodputs) -> list[float]:
    return comparison.values(found, table_of(setting, goodputs), f"met_{cases.target_of(setting)}")


if __name__ == "__main__":
    main()
