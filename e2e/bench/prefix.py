"""SAL with and without its prefix index, on simulated fleets whose engines cache prefixes.

Mooncake's conversations carry the ids of their prompts' blocks; `chats` are synthetic chats of several turns.
"""

from e2e.bench import intervals, plots, report, results, study
from e2e.bench.fleet_cases import FleetCase, measure
from e2e.bench.intervals import Estimate
from e2e.bench.sal import NAMES

COMMAND = "python -m e2e.bench.prefix"
LOADS = (0.7, 0.9)
SEEDS = (0, 1)
ENGINES = {"mooncake": "llama-3-8b-h100-long", "chats": "llama-3-8b-h100"}
KINDS = ("prefix", "plain", "least_request", "round_robin")

INTRODUCTION = (
    "Prompts of up to 128k tokens (`mooncake`) and chats of several turns (`chats`). Loads are fractions of "
    "what the engines sustain without any caching."
)


def case(workload: str, kind: str, load: float, seed: int, *, quick: bool) -> FleetCase:
    """One run."""
    return FleetCase(
        workload,
        "sal" if kind in ("prefix", "plain") else kind,
        load,
        engines=2 if quick else 16,
        seed=seed,
        requests=10 if quick else 120 if workload == "mooncake" else 200,
        engine=ENGINES[workload],
        prefix_caching=True,
        prefix_index=kind == "prefix",
    )


def run(options: study.Options) -> None:
    """Simulate, and write figures, tables and a picture."""
    workloads = ("chats",) if options.quick else tuple(ENGINES)
    seeds = SEEDS[:1] if options.quick else SEEDS
    quick = options.quick
    cases = {
        (workload, kind, load, seed): case(workload, kind, load, seed, quick=quick)
        for workload in workloads
        for kind in KINDS
        for load in LOADS
        for seed in seeds
    }
    found = measure(list(cases.values()), "prefix index", options.workers)

    def values(workload: str, kind: str, load: float, figure: str) -> list[float]:
        return [float(found[cases[workload, kind, load, seed]][figure]) for seed in seeds]

    def ratio(workload: str, other: str, load: float, figure: str) -> Estimate:
        ours, theirs = (values(workload, kind, load, figure) for kind in ("prefix", other))
        return intervals.ratio(ours, theirs)

    figures: dict[str, float] = {}
    for workload in workloads:
        for load in LOADS:
            name = f"{workload}_{round(load * 10):02d}"
            for figure in ("ttft_mean", "ttft_p95", "jct_mean"):
                figures[f"{figure}_ratio_prefix_vs_plain_sal_{name}"] = ratio(
                    workload, "plain", load, figure
                ).value
            for kind in KINDS:
                hits = values(workload, kind, load, "cached_share")
                figures[f"hit_rate_{kind}_{name}"] = sum(hits) / len(hits)
    if "mooncake" in workloads:
        for kind in ("plain", "prefix"):
            figures[f"hit_rate_{kind}_16"] = figures[f"hit_rate_{kind}_mooncake_09"]
    results.write("prefix", COMMAND, figures, simulated=True, folder=options.folder)
    names = NAMES | {"prefix": "SAL with index", "plain": "SAL without index"}
    groups = {
        f"{workload}, load {load:g}": {
            names[other]: ratio(workload, other, load, "ttft_mean") for other in KINDS if other != "prefix"
        }
        for workload in workloads
        for load in LOADS
    }
    plots.ratios(
        options.folder / "prefix.svg",
        "Mean TTFT of SAL with the prefix index over that of others",
        "Simulated; 16 engines of Llama-3-8B on H100 with prefix caching; left of 1: the index helps.",
        groups,
        x_label="mean TTFT, SAL with index / other",
    )
    rows: list[list[report.Cell]] = []
    for workload in workloads:
        for load in LOADS:
            for kind in KINDS:
                numbers = [values(workload, kind, load, f) for f in ("ttft_mean", "ttft_p95", "cached_share")]
                mean, p95, share = (sum(each) / len(each) for each in numbers)
                versus = ratio(workload, kind, load, "ttft_mean") if kind != "prefix" else None
                rows.append(
                    [f"{workload}, {load:g}, {names[kind]}", 1000 * mean, 1000 * p95, 100 * share, versus]
                )
    header = ["", "mean TTFT, ms", "p95, ms", "prompt tokens from cache, %", "with index / this"]
    report.page(
        "prefix",
        "SAL's prefix index on simulated fleets",
        INTRODUCTION,
        report.picture(options.folder / "prefix.svg", "Mean TTFT of SAL with the index over that of others."),
        report.table(header, rows),
        folder=options.folder,
    )


def main() -> None:
    """Run the study by its command line."""
    run(study.options(__doc__))


if __name__ == "__main__":
    main()
