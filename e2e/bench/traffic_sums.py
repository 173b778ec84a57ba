"""Plans found with the traffic that sidecars tell: `python -m e2e.bench.traffic_sums`.

Of each instance three plans: found with its requests, with requests made of what a sidecar tells of them, and
with the same but spread evenly over each window, as if no sidecar told of bursts. All are scored, by the same
estimates, with its requests.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from statistics import fmean

from e2e.bench.placement.instances import LONGEST, Instance, draw
from e2e.bench.report import results
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.pool import ENGINE_SOURCES, Figures, run_all
from e2e.cluster.places import REPOSITORY
from headrace_engine.contracts.traffic import WINDOW_SECONDS, TrafficWindow
from headrace_engine.control.records import FinishedRequest
from headrace_operator.placement.problem import Plan, Request, Service
from headrace_operator.placement.score import FitsNowhereError, Scorer
from headrace_operator.placement.search import search_within
from headrace_operator.placement.traffic import busiest_span, make_requests
from headrace_sidecar.traffic_log import TrafficLog

COMMAND = "python -m e2e.bench.traffic_sums"
SOURCES = (
    *ENGINE_SOURCES,
    REPOSITORY / "operator/src/headrace_operator/placement",
    REPOSITORY / "sidecar/engine/src/headrace_sidecar/traffic_log.py",
    REPOSITORY / "e2e/bench/placement/instances.py",
    REPOSITORY / "e2e/bench/traffic_sums.py",
)
INSTANCES = tuple(
    Instance(nodes, 4, services, rate, requests=2400, seed=seed)
    for nodes, services in ((1, 3), (2, 6))
    for rate in (1.0, 2.0, 4.0)
    for seed in range(8)
)
WORK = 400_000  # requests that a search may estimate
BEGIN = 1_795_000_000  # unix seconds


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(options: Options) -> None:
    """Search, and write the figures."""
    instances = INSTANCES[::24] if options.quick else INSTANCES
    compared = run_all(instances, compare, "traffic_sums", sources=SOURCES, workers=options.workers)
    placed = [found for found in compared.values() if found["feasible"]]
    made: dict[str, float] = {"instances": len(placed)}
    for way in ("told", "even"):
        lost = [100 * (float(found["known"]) - float(found[way])) for found in placed]
        made[f"{way}_lost_points_mean"] = round(fmean(lost), 2)
        made[f"{way}_lost_points_worst"] = round(max(lost), 2)
        wrong = [100 * abs(float(found[f"{way}_expected"]) - float(found[way])) for found in placed]
        made[f"{way}_error_points_mean"] = round(fmean(wrong), 2)
        made[f"{way}_error_points_worst"] = round(max(wrong), 2)
        made[f"{way}_latency_mean"] = round(
            fmean(float(found[f"{way}_latency"]) / float(found["known_latency"]) for found in placed), 3
        )
    print(results.write("traffic_sums", COMMAND, made, simulated=True, folder=options.folder))


def compare(instance: Instance) -> Figures:
    """Find the three plans; `feasible` if there are any.

    Figures are shares of all requests that meet their targets, and mean normalised latencies; `expected`: by
    the requests that the plan was found with.
    """
    services, nodes = draw(instance)
    try:
        known = Scorer(services, nodes)
    except FitsNowhereError:
        return {"feasible": 0}
    best = _search(known)
    if not best:
        return {"feasible": 0}
    figures: dict[str, float] = {
        "known": _attainment(known, best),
        "known_latency": known.score(best).latency,
    }
    told = from_sums(services)
    for way, asked in (("told", told), ("even", spread(told))):
        scorer = Scorer(asked, nodes)
        plan = _search(scorer)
        figures[way] = _attainment(known, plan)
        figures[f"{way}_latency"] = known.score(plan).latency
        figures[f"{way}_expected"] = _attainment(scorer, plan)
    return {"feasible": 1, **figures}


def from_sums(services: Sequence[Service]) -> list[Service]:
    """Return the services with requests that are made of what a sidecar tells of theirs."""
    told = [tell(service.requests) for service in services]
    span = busiest_span(told, sum(len(service.requests) for service in services))
    return [
        replace(
            service,
            requests=make_requests(windows, span, LONGEST, len(service.requests), Random(service.name)),
        )
        for service, windows in zip(services, told, strict=True)
    ]


def spread(services: Sequence[Service]) -> list[Service]:
    """Return the services with the requests of each window anywhere in it."""
    found = []
    for service in services:
        random = Random(service.name)
        times = sorted(
            (each.at // WINDOW_SECONDS + random.random()) * WINDOW_SECONDS for each in service.requests
        )
        requests = tuple(each._replace(at=at) for each, at in zip(service.requests, times, strict=True))
        found.append(replace(service, requests=requests))
    return found


def tell(requests: Sequence[Request]) -> tuple[TrafficWindow, ...]:
    """Return what the sidecar tells of requests."""
    log = TrafficLog()
    log.add(finished(BEGIN + each.at, each.prompt_tokens, each.output_tokens) for each in requests)
    return log.last_hour(BEGIN + requests[-1].at).windows


def finished(at: float, prompt_tokens: int, output_tokens: int) -> FinishedRequest:
    """Make the record of a request that came and ended at a moment, without targets."""
    return FinishedRequest(
        time=at,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        ttft=0.0,
        max_itl=0.0,
        tpot=0.0,
        itl_violations=0,
        e2e=0.0,
        queue_time=0.0,
        targets=0,
        met=0,
        preemptions=0,
    )


def _search(scorer: Scorer) -> Plan:
    found = search_within(scorer, WORK)
    return () if found.score.unplaced else found.plan


def _attainment(scorer: Scorer, plan: Plan) -> float:
    standings = scorer.standings(plan)
    return sum(each.met for each in standings) / sum(each.requests for each in standings)


if __name__ == "__main__":
    main()
