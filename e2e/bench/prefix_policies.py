"""Every policy against stock where all prompts begin alike, with prefix caching on.

One long beginning, as a service's instructions to its model are, behind which each request has a prompt of
its own. None may cost a policy more than it costs order of arrival: what is cached needs neither computing
nor room.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from e2e.bench.report import intervals, markdown, plots, results
from e2e.bench.report.intervals import Estimate
from e2e.bench.report.markdown import Cell
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.comparison import LEAST, Found
from e2e.bench.runs.engine import Case, measure
from e2e.bench.runs.workloads import BEGINNING, BEGINNINGS

COMMAND = "python -m e2e.bench.prefix_policies"
ENGINE = "llama-3-8b-h100-long"
POLICIES = ("FCFS", "LARRY", "AccelGen", "EconoServe", "DoublingBudget")
LOADS = (0.5, 0.9)
SEEDS = (0, 1, 2)
REQUESTS = 500
FIGURES = {"ttft": "ttft_mean", "tpot": "tpot_mean", "e2e": "e2e_mean", "wait_max": "wait_max"}

INTRODUCTION = (
    "Azure conversation's lengths (mean prompt 1,155 tokens) arriving at random, each prompt behind the same "
    "beginning of 0 to 16,384 tokens; Llama-3-8B on H100 with prefix caching, no targets, every policy with "
    "its defaults. Load 1 is what stock vLLM sustains on these very requests, cache and all. Means over "
    "three seeds, ratios to stock with the same seed. The cost model was fitted up to 8,192 tokens of "
    "context; behind 16,384 it is extrapolated."
)


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(options: Options) -> None:
    """Simulate what is missing, then write figures, page and picture."""
    beginnings, seeds, requests = (
        (BEGINNINGS[:2], SEEDS[:1], 60) if options.quick else (BEGINNINGS, SEEDS, REQUESTS)
    )
    stocks = {
        (tokens, load): [
            Case(f"{BEGINNING}{tokens}", ENGINE, load, seed, requests=requests) for seed in seeds
        ]
        for tokens in beginnings
        for load in LOADS
    }
    every = [
        served(case, policy) for cases in stocks.values() for case in cases for policy in ("stock", *POLICIES)
    ]
    found = measure(every, "shared beginnings", options.workers)
    print(
        results.write(
            "prefix_policies", COMMAND, figures(found, stocks), simulated=True, folder=options.folder
        )
    )
    ratio = partial(compared, found)
    plots.ratios(
        options.folder / "prefix_policies.svg",
        "Mean TTFT of each policy over stock's, where all prompts begin alike",
        "Simulated; Llama-3-8B on H100 with prefix caching, three seeds.",
        {
            named(tokens, load): {policy: ratio(cases, policy, "ttft") for policy in POLICIES}
            for (tokens, load), cases in stocks.items()
        },
        x_label="mean TTFT / stock's",
    )
    rows = [
        row(found, tokens, load, cases, policy)
        for (tokens, load), cases in stocks.items()
        for policy in ("stock", *POLICIES)
    ]
    header = (
        "",
        "mean TTFT, ms",
        "/ stock",
        "TPOT, ms",
        "/ stock",
        "end to end, s",
        "/ stock",
        "longest wait, s",
        "of prompts cached",
    )
    markdown.page(
        "prefix_policies",
        "Policies and shared beginnings",
        INTRODUCTION,
        markdown.picture(options.folder / "prefix_policies.svg", "Mean TTFT of each policy over stock's."),
        markdown.table(header, rows),
        folder=options.folder,
    )


Stocks = dict[tuple[int, float], list[Case]]
"""Stock's runs, one for each seed, by beginning and load."""


def served(case: Case, policy: str) -> Case:
    """Return the same run served by `policy`."""
    return replace(case, policy=policy)


def compared(found: Found, cases: Sequence[Case], policy: str, figure: str) -> Estimate:
    """Return the policy's figure over stock's; waits of less than a millisecond count as one."""
    ours, theirs = (
        [max(float(found[served(case, name)][FIGURES[figure]]), LEAST) for case in cases]
        for name in (policy, "stock")
    )
    return intervals.ratio(ours, theirs)


def figures(found: Found, stocks: Stocks) -> dict[str, float]:
    """Return what `prefix_policies.json` holds: every ratio, and for each figure the worst."""
    made: dict[str, float] = {}
    for figure in FIGURES:
        ratios = {
            f"{figure}_ratio_{policy.lower()}_{tokens}_{round(load * 10):02d}": compared(
                found, cases, policy, figure
            )
            for (tokens, load), cases in stocks.items()
            for policy in POLICIES
        }
        made[f"{figure}_ratio_worst"] = max(each.value for each in ratios.values())
        for name, each in ratios.items():
            made |= intervals.keyed(name, each)
    return {name: round(value, 3) for name, value in made.items()}


def row(found: Found, tokens: int, load: float, cases: Sequence[Case], policy: str) -> list[Cell]:
    """Return one policy at one beginning and load; ratios to stock, none of its own."""

    def mean(figure: str) -> float:
        return intervals.mean([float(found[served(case, policy)][figure]) for case in cases]).value

    def ratio(figure: str) -> Cell:
        return None if policy == "stock" else compared(found, cases, policy, figure)

    return [
        f"{named(tokens, load)}, {policy}",
        *(1000 * mean("ttft_mean"), ratio("ttft")),
        *(1000 * mean("tpot_mean"), ratio("tpot")),
        *(mean("e2e_mean"), ratio("e2e")),
        *(mean("wait_max"), f"{mean('cached_share'):.0%}"),
    ]


def named(tokens: int, load: float) -> str:
    """Name a beginning and a load, for people."""
    return f"{tokens:,} tokens alike, load {load:g}"


if __name__ == "__main__":
    main()
