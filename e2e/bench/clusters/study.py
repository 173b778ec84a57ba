"""Whole clusters whose services share GPUs, simulated: `python -m e2e.bench.clusters`.

Services with models of today on H100s, and with the paper's on A100s; each way at several rates, and the same
requests on fewer and fewer GPUs. Medians over seeds: in some of them one service is asked more than any plan
serves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median

from e2e.bench.clusters import cases
from e2e.bench.clusters.cases import SLO_SCALES, WAYS, ClusterCase
from e2e.bench.placement.instances import Instance
from e2e.bench.report import markdown, results
from e2e.bench.report.markdown import Cell
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.pool import Figures
from e2e.bench.sharing.cases import REPORTED
from headrace_operator.placement.problem import ATTAINMENT

COMMAND = "python -m e2e.bench.clusters"
SEEDS = 4
SECONDS = 240  # of arrivals, half of which a plan is made of
LEAST_REQUESTS = 4800
NODE = 8  # GPUs
OURS = "pairs"
NAMES = {
    "apart": "GPUs of its own for each",
    "pairs": "shared by two at most, FairShare",
    "fours": "shared by four at most, FairShare",
    "seallm": "SeaLLM's search, DoublingBudget",
    "oldest_first": "SeaLLM's search, turns in order of arrival",
    "in_rotation": "shared by two, round robin",
    "time_sliced": "shared by two, GPUs in time slices",
}
FELT = ("norm_latency_p99", "ttft_mean", "tpot_mean", "e2e_mean", "e2e_p99", "wait_max")
METRICS = (
    "unplaced",
    "norm_latency",
    "norm_latency_p99",
    *(f"attainment_{scale}" for scale in SLO_SCALES),
    "attainment_worst_service",
    *REPORTED,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """Services at one rate. `key`: in figures. `rate`: requests/s for each of `gpus`."""

    key: str
    models: str
    gpus: int
    services: int
    rate: float

    def case(self, way: str, seed: int, gpus: int = 0, noise: float = 0.0) -> ClusterCase:
        """Return one run of it, on so many GPUs or all of its own."""
        requests = max(LEAST_REQUESTS, round(SECONDS * self.rate * self.gpus))
        nodes = self.gpus // NODE
        instance = Instance(nodes, NODE, self.services, self.rate, requests=requests, seed=seed)
        return ClusterCase(instance, way, gpus or self.gpus, self.models, noise)


SETTINGS = (
    *(Setting(f"16_{rate:g}", "today", 16, 12, rate) for rate in (0.5, 1, 2)),
    Setting("8_1", "today", 8, 6, 1),
    Setting("32_1", "today", 32, 24, 1),
    *(Setting(f"paper_16_{rate:g}", "paper", 16, 12, rate) for rate in (0.5, 1)),
)
BASE = SETTINGS[1]
FEWER = Setting("fewer", "today", 24, 12, 0.5)
SIZES = (24, 20, 16, 14, 12, 10, 8)  # GPUs that the same services are put on
SHRUNK = ("apart", "pairs", "fours", "seallm", "time_sliced")
REFERENCES = SIZES[:-2]  # that services of their own GPUs have; there is none much smaller than the last two
AS_MANY = 0.005  # so much less of the requests in time is no less
NOISES = (0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Study:
    """What was measured."""

    found: Mapping[ClusterCase, Figures]

    def median(self, runs: Sequence[ClusterCase], metric: str) -> float:
        """Return the median of a metric."""
        return median(float(self.found[run][metric]) for run in runs)

    def ratio(self, setting: Setting, other: str, metric: str = "norm_latency") -> float | None:
        """Return `OURS` over another way: the geometric mean of the seeds in which both place all services.

        None if there is none.
        """
        ratios = [
            float(mine[metric]) / float(its[metric])
            for seed in range(SEEDS)
            if not (mine := self.found[setting.case(OURS, seed)])["unplaced"]
            and not (its := self.found[setting.case(other, seed)])["unplaced"]
        ]
        return geometric_mean(ratios) if ratios else None

    def fewest(self, way: str, seed: int) -> int:
        """Return the fewest GPUs on which, and on all more, every service has enough requests in time."""
        return self._fewest(way, seed, "attainment_worst_service", ATTAINMENT)

    def as_good_as(self, gpus: int, way: str, seed: int) -> int:
        """Return the fewest GPUs on which, and on all more, as many are in time as on so many apart."""
        apart = float(self.found[FEWER.case("apart", seed, gpus)]["attainment_5"])
        return self._fewest(way, seed, "attainment_5", apart - AS_MANY)

    def saved_percent(self, way: str) -> float:
        """Return the GPUs that a way does without and is as good, the mean over what services have apart."""
        needed = [self.as_good_as(gpus, way, seed) / gpus for gpus in REFERENCES for seed in range(SEEDS)]
        return 100 * (1 - fmean(needed))

    def _fewest(self, way: str, seed: int, metric: str, least: float) -> int:
        fewest = SIZES[0]
        for gpus in SIZES:
            if float(self.found[FEWER.case(way, seed, gpus)][metric]) < least:
                break
            fewest = gpus
        return fewest


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(options: Options) -> None:
    """Simulate what is missing, then write figures and page."""
    if options.quick:
        tiny = Instance(1, 2, 2, 1.0, requests=80, seed=0)
        cases.measure([ClusterCase(tiny, way, 2) for way in WAYS], "clusters, quick", options.workers)
        return
    study = Study(cases.measure(everything(), "clusters", options.workers))
    print(results.write("clusters", COMMAND, figures(study), simulated=True, folder=options.folder))
    print(markdown.page("clusters", "Clusters that share GPUs", page(study), folder=options.folder))


def everything() -> list[ClusterCase]:
    """List all runs of the study, each once."""
    seeds = range(SEEDS)
    runs = [setting.case(way, seed) for setting in SETTINGS for way in WAYS for seed in seeds]
    runs += [FEWER.case(way, seed, gpus) for gpus in SIZES for way in SHRUNK for seed in seeds]
    runs += [BASE.case(OURS, seed, noise=noise) for noise in NOISES for seed in seeds]
    return list(dict.fromkeys(runs))


def figures(study: Study) -> dict[str, float]:
    """Return what `clusters.json` holds; ratios are of `OURS` to another way, below 1 it is better."""
    made: dict[str, float | None] = {}
    others = [way for way in WAYS if way != OURS]
    for setting in SETTINGS:
        for way in others:
            made[f"norm_latency_ratio_{way}_{setting.key}"] = study.ratio(setting, way)
        for way in WAYS:
            runs = [setting.case(way, seed) for seed in range(SEEDS)]
            made[f"attainment_{way}_{setting.key}"] = study.median(runs, "attainment_5")
            made[f"attainment_worst_service_{way}_{setting.key}"] = study.median(
                runs, "attainment_worst_service"
            )
            made[f"unplaced_{way}_{setting.key}"] = study.median(runs, "unplaced")
    for metric in FELT:
        for way in ("apart", "time_sliced"):
            made[f"{metric}_ratio_{way}_{BASE.key}"] = study.ratio(BASE, way, metric)
    for way in WAYS:
        runs = [BASE.case(way, seed) for seed in range(SEEDS)]
        for scale in SLO_SCALES:
            made[f"attainment_{way}_scale_{scale}"] = study.median(runs, f"attainment_{scale}")
    made |= _figures_of_fewer(study)
    for noise in NOISES:
        made[f"norm_latency_ratio_noise_{noise:g}"] = geometric_mean(
            float(study.found[BASE.case(OURS, seed, noise=noise)]["norm_latency"])
            / float(study.found[BASE.case(OURS, seed)]["norm_latency"])
            for seed in range(SEEDS)
        )
    for way in others:
        ratios = [study.ratio(setting, way) for setting in SETTINGS]
        made[f"worst_ratio_{way}"] = max((each for each in ratios if each is not None), default=None)
    return {key: round(value, 3) for key, value in made.items() if value is not None}


def _figures_of_fewer(study: Study) -> dict[str, float]:
    made: dict[str, float] = {}
    for way in SHRUNK:
        made[f"gpus_needed_{way}"] = fmean(study.fewest(way, seed) for seed in range(SEEDS))
        for gpus in SIZES:
            runs = [FEWER.case(way, seed, gpus) for seed in range(SEEDS)]
            made[f"attainment_{way}_on_{gpus}"] = study.median(runs, "attainment_5")
    for way in ("pairs", "fours"):
        for gpus in REFERENCES:
            needed = fmean(study.as_good_as(gpus, way, seed) for seed in range(SEEDS))
            made[f"gpus_{way}_as_good_as_apart_on_{gpus}"] = needed
    made["gpus_saved_percent"] = study.saved_percent(OURS)
    made["gpus_saved_percent_fours"] = study.saved_percent("fours")
    return made


def page(study: Study) -> str:
    """Write the page: every metric of every way, for each setting and each number of GPUs."""
    note = (
        "Normalised latency: E2E over the mean time that the service's requests take alone on the fewest "
        "GPUs. Attainment: share of requests within so many times what each takes alone; worst service: of "
        "the service with the least. Unplaced: services that got no engine; their requests are in attainment "
        f"alone. All else in seconds; medians over {SEEDS} seeds, since in some of them one service is asked "
        "more than any plan serves. Plans are made of as much traffic before that which is served. Lengths "
        "of ShareGPT, Azure's code and conversation, and arXiv, at random or in bursts; few services "
        "have most requests. KV is split in fixed shares; FCFS inside engines."
    )
    parts = [note]
    for setting in SETTINGS:
        gpu = cases.MODELS[setting.models].gpu
        parts.append(
            f"## {setting.services} services on {setting.gpus} {gpu}, models of {setting.models}, "
            f"{setting.rate * setting.gpus:g} requests/s"
        )
        parts.append(
            _table([(NAMES[way], [setting.case(way, seed) for seed in range(SEEDS)]) for way in WAYS], study)
        )
    parts.append(
        f"## The same {FEWER.services} services and {FEWER.rate * FEWER.gpus:g} requests/s on fewer H100"
    )
    parts.append(
        _table(
            [
                (f"{gpus} GPUs: {NAMES[way]}", [FEWER.case(way, seed, gpus) for seed in range(SEEDS)])
                for gpus in SIZES
                for way in SHRUNK
            ],
            study,
        )
    )
    return "\n\n".join(parts)


def _table(rows: Sequence[tuple[str, Sequence[ClusterCase]]], study: Study) -> str:
    header = ("way", *(metric.replace("_", " ") for metric in METRICS))
    cells: list[Sequence[Cell]] = [
        (name, *(f"{study.median(runs, metric):.3g}" for metric in METRICS)) for name, runs in rows
    ]
    return markdown.table(header, cells)
