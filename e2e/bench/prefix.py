"""SAL with and without its prefix index, on simulated fleets whose engines cache prefixes.

Mooncake's conversations carry the ids of their prompts' blocks; `chats` are synthetic chats of several turns.
"""

from dataclasses import replace

from e2e.bench.report import intervals, markdown, plots, results
from e2e.bench.report.intervals import Estimate
from e2e.bench.rivals import RIVALS
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.fleet import FleetCase, measure
from e2e.bench.sal.cases import NAMES, base
from e2e.bench.sal.study import DIGITS

COMMAND = "python -m e2e.bench.prefix"
SEEDS = {("mooncake", 0.9): (0, 1, 2), ("mooncake", 0.7): (0,), ("chats", 0.9): (0,)}  # by workload and load
KINDS = ("prefix", "plain", "least_request", "round_robin", *RIVALS)
Key = tuple[str, str, float, int]  # workload, kind, load, seed

INTRODUCTION = (
    "Prompts of up to 128k tokens (`mooncake`, 16 engines) and chats of several turns (`chats`, synthetic, "
    "8 engines; to fill a run of minutes, users read and type several times as fast as people do). Loads are "
    "fractions of what the engines sustain on the same requests without any caching. Three seeds where there "
    "is an interval. The cost model of the 8B model on H100 was fitted up to 8,192 tokens of context; beyond "
    "that, as for almost half of Mooncake's prompts, it is extrapolated. Texts have exactly four bytes per "
    "token here (elsewhere that varies from request to request), so SAL, with and without the index, knows "
    "the lengths of prompts better than it would, and so do the balancers of others, of which "
    "`e2e/bench/rivals` names the sources."
)


def case(workload: str, kind: str, load: float, seed: int, *, quick: bool) -> FleetCase:
    """Describe one run as a case."""
    balancer = "sal" if kind in ("prefix", "plain") else kind
    one = base(workload, load, balancer=balancer, seed=seed, prefix_index=kind != "plain")
    return replace(one, engines=2, requests=10) if quick else one


def all_cases(*, quick: bool) -> dict[Key, FleetCase]:
    """List every run that is simulated, each once."""
    return {
        (workload, kind, load, seed): case(workload, kind, load, seed, quick=quick)
        for (workload, load), seeds in SEEDS.items()
        if not quick or workload == "chats"
        for kind in KINDS
        for seed in seeds
    }


def run(options: Options) -> None:
    """Simulate, and write figures, tables and a picture."""
    cases = all_cases(quick=options.quick)
    rows_of = list(dict.fromkeys((workload, load) for workload, _, load, _ in cases))
    found = measure(list(cases.values()), "prefix index", options.workers)

    def values(workload: str, kind: str, load: float, figure: str) -> list[float]:
        return [float(found[cases[workload, kind, load, seed]][figure]) for seed in SEEDS[workload, load]]

    def ratio(workload: str, other: str, load: float, figure: str) -> Estimate:
        ours, theirs = (values(workload, kind, load, figure) for kind in ("prefix", other))
        return intervals.ratio(ours, theirs)

    figures: dict[str, float] = {}
    for workload, load in rows_of:
        name = f"{workload}_{round(load * 10):02d}"
        for figure in ("ttft_mean", "ttft_p95", "e2e_mean"):
            key = f"{figure}_ratio_prefix_vs_plain_sal_{name}"
            figures |= intervals.keyed(key, ratio(workload, "plain", load, figure))
        for kind in KINDS:
            hits = values(workload, kind, load, "cached_share")
            figures[f"hit_rate_{kind}_{name}"] = sum(hits) / len(hits)
    if not options.quick:
        for kind in ("plain", "prefix"):
            figures[f"hit_rate_{kind}_16"] = figures[f"hit_rate_{kind}_mooncake_09"]
    rounded = {name: float(f"{value:.{DIGITS}g}") for name, value in figures.items()}
    results.write("prefix", COMMAND, rounded, simulated=True, folder=options.folder)
    names = NAMES | {"prefix": "SAL with index", "plain": "SAL without index"}
    groups = {
        f"{workload}, load {load:g}": {
            names[other]: ratio(workload, other, load, "ttft_mean") for other in KINDS if other != "prefix"
        }
        for workload, load in rows_of
    }
    plots.ratios(
        options.folder / "prefix.svg",
        "Mean TTFT of SAL with the prefix index over that of others",
        "Simulated; Llama-3-8B on H100 with prefix caching; left of 1: the index helps; dot alone: one seed.",
        groups,
        x_label="mean TTFT, SAL with index / other",
    )
    rows: list[list[markdown.Cell]] = []
    for workload, load in rows_of:
        for kind in KINDS:
            numbers = [values(workload, kind, load, f) for f in ("ttft_mean", "ttft_p95", "cached_share")]
            mean, p95, share = (sum(each) / len(each) for each in numbers)
            versus = ratio(workload, kind, load, "ttft_mean") if kind != "prefix" else None
            rows.append(
                [f"{workload}, {load:g}, {names[kind]}", 1000 * mean, 1000 * p95, 100 * share, versus]
            )
    header = ["", "mean TTFT, ms", "p95, ms", "prompt tokens from cache, %", "with index / this"]
    markdown.page(
        "prefix",
        "SAL's prefix index on simulated fleets",
        INTRODUCTION,
        markdown.picture(
            options.folder / "prefix.svg", "Mean TTFT of SAL with the index over that of others."
        ),
        markdown.table(header, rows),
        folder=options.folder,
    )


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


if __name__ == "__main__":
    main()
