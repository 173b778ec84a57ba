"""Services that move as their traffic changes, over a day: `python -m e2e.bench.replacement`.

Each service is asked what one client of a production service asked, at that client's rates of ten minutes
(ServeGen stands in for the trace of SeaLLM's section 6). The operator's own code makes plans, takes them up
and moves services, in virtual time; what becomes of the requests is estimated as plans are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from e2e.bench.replacement.day_traffic import DAY, busiest_hour, draw_services
from e2e.bench.replacement.replayed_pool import (
    HOUR,
    Setting,
    Tally,
    replay_adaptive,
    replay_auto,
    replay_dedicated,
    replay_planned,
)
from e2e.bench.report import results
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.pool import ENGINE_SOURCES, Figures, run_all
from e2e.cluster.places import REPOSITORY

COMMAND = "python -m e2e.bench.replacement"
OPERATOR = REPOSITORY / "operator/src/headrace_operator"
SOURCES = (
    *ENGINE_SOURCES,
    OPERATOR / "placement",
    OPERATOR / "planning",
    OPERATOR / "decide/adoption.py",
    OPERATOR / "decide/moves.py",
    OPERATOR / "decide/places.py",
    OPERATOR / "simulate",
    REPOSITORY / "e2e/bench/traffic_sums.py",
    REPOSITORY / "e2e/bench/replacement",
)
GPUS = 4
Replay = Callable[[Setting], Tally]
WAYS: Mapping[str, Replay] = {
    "dedicated": replay_dedicated,
    "first": lambda setting: replay_planned(setting, DAY - HOUR),
    "peak": lambda setting: replay_planned(setting, busiest_hour(setting.services, 0, DAY)),
    "auto": lambda setting: replay_auto(setting, 600),
    "auto_hourly": lambda setting: replay_auto(setting, HOUR),
    "adaptive": replay_adaptive,
}
"""`dedicated`: all stay on GPUs of their own; `first`: one plan, by the hour before; `peak`: one plan, by the
busiest hour of the day before; `auto`: as the operator does it, with a plan every ten minutes; `auto_hourly`:
the same with one an hour; `adaptive`: at intervals that change as in SeaLLM.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One day. `rate`: requests/s of all services, on the mean of the day and the one before."""

    services: int
    rate: float
    seed: int
    changing: bool
    way: str
    hours: int = 24


CASES = tuple(
    Case(services=4, rate=3.0, seed=seed, changing=changing, way=way)
    for way in WAYS
    for changing in (True, False)
    for seed in range(4)
)

QUICK = tuple(Case(services=3, rate=0.5, seed=0, changing=True, way=way, hours=1) for way in WAYS)


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(options: Options) -> None:
    """Replay the days, and write the figures."""
    cases = QUICK if options.quick else CASES
    found = run_all(cases, replay_day, "replacement", sources=SOURCES, workers=options.workers)
    print(results.write("replacement", COMMAND, _figures(found), simulated=True, folder=options.folder))


def replay_day(case: Case) -> Figures:
    """Replay one day in one way."""
    services = draw_services(case.services, case.rate, case.seed, changing=case.changing)
    tally = WAYS[case.way](Setting(services, GPUS, case.hours))
    asked = sum(tally.asked.values())
    in_time = [tally.met[name] / count for name, count in tally.asked.items() if count]
    return {
        "in_time_percent": 100 * sum(tally.met.values()) / asked,
        "least_in_time_percent": 100 * min(in_time),
        "worst_in_time_percent": 100 * tally.worst,
        "refused_percent": 100 * tally.refused / asked,
        "latency": tally.latency / (asked - tally.refused),
        "gpu_hours": tally.gpu_seconds / 3600,
        "moves_per_service_hour": tally.moves / case.services / case.hours,
    }


def _figures(found: Mapping[Case, Figures]) -> dict[str, float]:
    made: dict[str, float] = {}
    for way in WAYS:
        days = [figures for case, figures in found.items() if case.way == way]
        for key in days[0]:
            made[f"{key}_{way}"] = round(fmean(float(each[key]) for each in days), 3)
    made["replacement_gain_24h"] = round(1 - _ratio(found, "latency", "first"), 3)
    made["gpu_hours_saved_percent"] = round(100 * (1 - _ratio(found, "gpu_hours", "dedicated")), 1)
    made["moves_per_service_hour"] = made.pop("moves_per_service_hour_auto")
    return made


def _ratio(found: Mapping[Case, Figures], key: str, other: str) -> float:
    """Return the mean over days of what comes of `auto` to what comes of the other way."""
    ratios = [
        float(figures[key]) / float(found[replace(case, way=other)][key])
        for case, figures in found.items()
        if case.way == "auto"
    ]
    return fmean(ratios)
