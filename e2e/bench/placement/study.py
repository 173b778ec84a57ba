"""The search for placement plans: `python -m e2e.bench.placement`.

Plans of small instances against the best of all plans, times of large ones, and the estimates that plans are
scored by against the simulator with vLLM's scheduler, on the runs of `e2e.bench.sharing`.
"""

import time
from collections.abc import Sequence
from statistics import fmean, median

from e2e.bench.placement import exhaustive
from e2e.bench.placement.estimate_errors import Estimated, estimate_runs
from e2e.bench.placement.instances import Instance, draw
from e2e.bench.report import markdown, results
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.pool import ENGINE_SOURCES, Figures, run_all
from e2e.cluster.places import REPOSITORY
from headrace_operator.placement.score import FitsNowhereError, Score, Scorer
from headrace_operator.placement.search import Found, search

COMMAND = "python -m e2e.bench.placement"
SOURCES = (
    *ENGINE_SOURCES,
    REPOSITORY / "operator/src/headrace_operator/placement",
    REPOSITORY / "e2e/bench/placement/instances.py",
    REPOSITORY / "e2e/bench/placement/exhaustive.py",
    REPOSITORY / "e2e/bench/placement/study.py",
)
SMALL = tuple(
    Instance(nodes, gpus, services, rate, requests=200, seed=seed)
    for nodes, gpus in ((1, 2), (2, 2), (1, 4), (2, 4), (1, 8))
    for services in (2, 3, 4)
    for rate in (1.0, 4.0, 12.0)
    for seed in range(4)
)
LARGE = {
    "32_16": (Instance(4, 8, 16, 2.0, requests=2000, seed=0), 4.5),
    "64_32": (Instance(8, 8, 32, 2.0, requests=5000, seed=0), 18.0),
}
"""By GPUs and services; and the seconds after which the search is ended."""
LONGER = 8  # times as long, to see what the limit costs


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(options: Options) -> None:
    """Search, and write figures and page."""
    small = SMALL[::30] if options.quick else SMALL
    compared = run_all(small, compare, "placement", sources=SOURCES, workers=options.workers)
    placed = [found for found in compared.values() if found["feasible"]]
    large: dict[str, float] = {}
    for key, case in () if options.quick else LARGE.items():
        large |= time_search(key, *case)
    estimated = estimate_runs(options)
    made = {
        "instances": len(placed),
        **{
            f"{way}_{how}": round(of(float(found[way]) for found in placed), 4)
            for way in ("of_exhaustive", "greedy_of_exhaustive")
            for how, of in (("worst", min), ("mean", fmean))
        },
        **large,
        **_errors(estimated),
    }
    print(results.write("placement", COMMAND, made, simulated=True, folder=options.folder))
    page = _page(estimated)
    print(markdown.page("placement", "Estimates of groups that share GPUs", page, folder=options.folder))


def compare(instance: Instance) -> Figures:
    """Compare the search with the best of all plans; `feasible` if there is any plan."""
    services, nodes = draw(instance)
    try:
        scorer = Scorer(services, nodes)
    except FitsNowhereError:
        return {"feasible": 0}
    best = exhaustive.find_best(scorer)
    if not best.plan:
        return {"feasible": 0}
    found = search(scorer, lambda: False)
    greedy = search(scorer, lambda: False, improve=False)
    return {
        "feasible": 1,
        "of_exhaustive": reach(found, best.score, scorer),
        "greedy_of_exhaustive": reach(greedy, best.score, scorer),
    }


def reach(found: Found, best: Score, scorer: Scorer) -> float:
    """Return the part of the best score that is reached: 0 with a service left out, of requests in time where
    those differ, else of speed, the inverse of normalised latency.
    """
    if found.score.unplaced > best.unplaced:
        return 0.0
    requests = sum(len(service.requests) for service in scorer.services)
    if found.score.short != best.short:
        return (requests - found.score.short) / (requests - best.short)
    return best.latency / found.score.latency


def time_search(key: str, instance: Instance, limit: float) -> dict[str, float]:
    """Time SeaLLM's search, and ours until `limit`; how many requests are short of `ATTAINMENT` by each, and
    what normalised latency one that may last longer would come to.
    """
    services, nodes = draw(instance)
    greedy, greedy_seconds = _timed(Scorer(services, nodes), limit, improve=False)
    found, seconds = _timed(Scorer(services, nodes), limit)
    longer, _ = _timed(Scorer(services, nodes), LONGER * limit)
    requests = sum(len(service.requests) for service in services)
    return {
        f"search_{key}_seconds": round(seconds, 2),
        f"greedy_{key}_seconds": round(greedy_seconds, 2),
        f"search_short_{key}_percent": round(100 * found.score.short / requests, 2),
        f"greedy_short_{key}_percent": round(100 * greedy.score.short / requests, 2),
        f"greedy_unplaced_{key}": greedy.score.unplaced,
        f"latency_of_longer_{key}": round(longer.score.latency / found.score.latency, 4),
    }


def _timed(scorer: Scorer, limit: float, *, improve: bool = True) -> tuple[Found, float]:
    started = time.perf_counter()
    found = search(scorer, lambda: time.perf_counter() - started > limit, improve=improve)
    return found, time.perf_counter() - started


def _errors(estimated: Sequence[Estimated]) -> dict[str, float]:
    """Return how far estimates are off, in percent of the simulator's normalised latency."""
    made = {}
    for kind, runs in (
        ("alone", [each for each in estimated if each.case.way == "dedicated"]),
        ("shared", [each for each in estimated if each.case.way != "dedicated"]),
    ):
        errors = [each.error_percent for each in runs]
        made[f"estimate_error_{kind}_median_percent"] = round(median(map(abs, errors)), 1)
        made[f"estimate_error_{kind}_worst_percent"] = round(max(map(abs, errors)), 1)
    return made


def _page(estimated: Sequence[Estimated]) -> str:
    """Write the page: each group and rate, estimated and simulated."""
    note = (
        "Mean normalised latency and share of requests within five times what they take alone: by the "
        "estimate that placement plans are scored by, and by the simulator with vLLM's own scheduler. Means "
        "over seeds."
    )
    header = (
        "group",
        "requests/s",
        "way",
        "latency, estimated",
        "simulated",
        "in time, estimated",
        "simulated",
    )
    rows = [
        (
            each.case.group.key,
            f"{each.case.rate:g}",
            each.case.way,
            f"{each.latency:.2f}",
            f"{each.simulated_latency:.2f}",
            f"{each.attainment:.2f}",
            f"{each.simulated_attainment:.2f}",
        )
        for each in estimated
    ]
    return f"{note}\n\n{markdown.table(header, rows)}"
