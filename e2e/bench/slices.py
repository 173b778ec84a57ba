"""Slices inside engines behind SAL, against the same without: `python -m e2e.bench.slices`.

Four engines, FCFS, the default patience. Where a reasoning service's lengths have long tails and KV binds,
at four loads and with one engine at half speed; and elsewhere, where slices shall do no harm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from e2e.bench.report import markdown, results
from e2e.bench.report.markdown import Cell
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.fleet import FleetCase, measure
from e2e.bench.runs.pool import Figures

COMMAND = "python -m e2e.bench.slices"
SLICE = 512  # tokens
SEEDS = 3
ENGINES = 4
REQUESTS = 800  # for each engine, with long tails: queues build up over many answers' time
SMALL = "llama-3-8b-h100-8gib"
METRICS = (
    "e2e_mean",
    "e2e_p50",
    "e2e_p95",
    "e2e_p99",
    "ttft_mean",
    "ttft_p95",
    "tpot_mean",
    "gap_p99",
    "wait_max",
)
WORST = ("e2e_mean", "ttft_mean")  # of what slices shall do no harm to elsewhere


@dataclass(frozen=True, slots=True)
class Setting:
    """One case of the study. `key`: in figures."""

    key: str
    name: str
    case: FleetCase


def _long_tail(load: float, slow: int = 0) -> FleetCase:
    return FleetCase("servegen-deepseek-r1", "sal", load, ENGINES, requests=REQUESTS, engine=SMALL, slow=slow)


def _elsewhere(workload: str, engine: str) -> FleetCase:
    return FleetCase(workload, "sal", 0.9, ENGINES, engine=engine)


LONG_TAILS = (
    Setting("longtail_kv_90", "long tail, KV binds, load 0.9", _long_tail(0.9)),
    Setting("longtail_kv", "long tail, KV binds, load 1", _long_tail(1.0)),
    Setting("longtail_kv_110", "long tail, KV binds, load 1.1", _long_tail(1.1)),
    Setting("longtail_kv_130", "long tail, KV binds, load 1.3", _long_tail(1.3)),
    Setting("longtail_kv_half_speed", "the same at load 1, one of four at half speed", _long_tail(1.0, 1)),
)
ELSEWHERE = (
    Setting("longtail_ample", "long tail, KV ample", _elsewhere("servegen-deepseek-r1", "llama-3-8b-h100")),
    Setting("conversation", "conversation, KV ample", _elsewhere("conversation", "llama-3-8b-h100")),
    Setting("conversation_kv", "conversation, KV binds", _elsewhere("conversation", SMALL)),
    Setting("mooncake", "Mooncake", _elsewhere("mooncake", "llama-3-8b-h100-long")),
)
Found = Mapping[FleetCase, Figures]


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(options: Options) -> None:
    """Simulate what is missing, then write figures and page."""
    settings: Sequence[Setting] = (*LONG_TAILS, *ELSEWHERE)
    if options.quick:
        settings = [replace(each, case=replace(each.case, requests=20)) for each in settings[:1]]
    cases = [case for each in settings for tokens in (0, SLICE) for case in seeds(each, tokens)]
    found = measure(cases, "slices", options.workers)
    made = figures(found, settings)
    print(results.write("slices", COMMAND, made, simulated=True, folder=options.folder))
    print(markdown.page("slices", "Slices", page(found, settings), folder=options.folder))


def seeds(setting: Setting, tokens: int) -> list[FleetCase]:
    """List the runs of a setting with slices of so many tokens, 0 for none."""
    return [replace(setting.case, slice_tokens=tokens, seed=seed) for seed in range(SEEDS)]


def figures(found: Found, settings: Sequence[Setting]) -> dict[str, float]:
    """Return what `slices.json` holds: each metric with slices over the same without."""
    made = {
        f"{metric.replace('e2e', 'jct')}_ratio_{each.key}": ratio(found, each, metric)
        for each in settings
        for metric in METRICS
    }
    elsewhere = [each for each in settings if each in ELSEWHERE]
    if elsewhere:
        made["worst_ratio_elsewhere"] = max(
            ratio(found, each, metric) for each in elsewhere for metric in WORST
        )
    return {key: round(value, 3) for key, value in made.items()}


def ratio(found: Found, setting: Setting, metric: str) -> float:
    """Return the mean over seeds of a metric with slices, over that without."""
    return mean(found, setting, metric, SLICE) / mean(found, setting, metric, 0)


def mean(found: Found, setting: Setting, metric: str, tokens: int) -> float:
    """Return the mean of a metric over seeds, with slices of so many tokens."""
    return fmean(float(found[case][metric]) for case in seeds(setting, tokens))


def page(found: Found, settings: Sequence[Setting]) -> str:
    """Write the page: every metric of every setting, with slices and without."""
    rows: list[Sequence[Cell]] = [
        (
            each.name,
            f"{tokens} tokens" if tokens else "none",
            *(f"{mean(found, each, metric, tokens):.3g}" for metric in METRICS),
            f"{mean(found, each, 'preemptions', tokens):.0f}",
        )
        for each in settings
        for tokens in (0, SLICE)
    ]
    note = (
        f"{ENGINES} engines (Llama-3-8B on H100; where KV binds 8 GiB of it each) behind SAL, FCFS, patience "
        f"10 s, load 0.9 unless said otherwise; means over {SEEDS} seeds, in seconds. Load 1 is what stock "
        "engines sustain when all requests wait from the start. Gap: a request's longest pause between two "
        "tokens. Wait: the longest until a request first started."
    )
    header = ("setting", "slice", *(metric.replace("_", " ") for metric in METRICS), "preemptions")
    return f"{note}\n\n{markdown.table(header, rows)}"


if __name__ == "__main__":
    main()
