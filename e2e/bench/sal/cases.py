"""What the study of SAL simulates: rows of cases on fleets that differ in load, workload, size and failures.

Three seeds where a figure is kept by name, one elsewhere. `e2e/bench/rivals` are the balancers of others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate
from e2e.bench.rivals import RIVALS
from e2e.bench.runs.doubt import GRID
from e2e.bench.runs.fleet import FleetCase
from e2e.bench.runs.pool import Figures

LOADS = (0.7, 0.9)
SEEDS, ONE = (0, 1, 2), (0,)
OTHERS = ("random", "round_robin", "power_of_two", "least_request", *RIVALS)
TWO = ("round_robin", "least_request")
STALE = (0.05, 0.5, 2.5)  # seconds between reports; the gateway drops what is older than 3 s
GRIDDED = {"conversation": ("least_request", "llm_d"), "code-poisson": ("least_request", "llm_d")}
LATENCIES = ("ttft_mean", "ttft_p95")
REQUESTS = {"conversation": 300, "mooncake": 120}  # for each engine; elsewhere 150
NAMES = {
    "sal": "SAL",
    "random": "Random",
    "round_robin": "RoundRobin",
    "power_of_two": "PowerOfTwo",
    "least_request": "LeastRequest",
    "llm_d": "llm-d",
    "llm_d_scorers": "llm-d 3/2/2",
    "lmetric": "LMetric",
    "dynamo": "Dynamo",
    "vllm_router": "vllm-router",
    "aibrix": "AIBrix",
    "two_choices": "two choices, tokens",
}
Found = Mapping[FleetCase, Figures]


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of cases that differ in balancer and seed only."""

    case: FleetCase
    others: Sequence[str] = TWO
    seeds: Sequence[int] = ONE

    def cases(self) -> list[FleetCase]:
        """List all cases of the setting."""
        return [self.of(balancer, seed) for balancer in ("sal", *self.others) for seed in self.seeds]

    def of(self, balancer: str, seed: int) -> FleetCase:
        """Return the case with this balancer and seed."""
        return replace(self.case, balancer=balancer, seed=seed)

    def ratio(self, found: Found, other: str, figure: str = "ttft_mean") -> Estimate:
        """Estimate the figure's ratio of SAL to another balancer."""
        ours, theirs = (
            [float(found[self.of(balancer, seed)][figure]) for seed in self.seeds]
            for balancer in ("sal", other)
        )
        return intervals.ratio(ours, theirs)

    def best_rival(self, found: Found, figure: str = "ttft_mean") -> str:
        """Name the rival with the lowest mean of the figure."""
        rivals = [other for other in self.others if other in RIVALS]
        return min(rivals, key=lambda other: self.mean(found, other, figure))

    def mean(self, found: Found, balancer: str, figure: str) -> float:
        """Return the figure's mean over the seeds."""
        values = [float(found[self.of(balancer, seed)][figure]) for seed in self.seeds]
        return sum(values) / len(values)


def base(workload: str, load: float, **changes: object) -> FleetCase:
    """Make SAL on a fleet of 16, or 8 for chats, several times as long as a request takes."""
    case = FleetCase(workload, "sal", load, requests=REQUESTS.get(workload, 150))
    if workload == "mooncake":
        case = replace(case, engine="llama-3-8b-h100-long")
    if workload == "chats":
        case = replace(case, engines=8)
    return replace(case, **changes)  # type: ignore[arg-type]


def settings(*, quick: bool) -> dict[str, list[Setting]]:
    """Return what is simulated, by section."""
    if quick:
        small = [
            Setting(base("conversation", 0.9, engines=2, requests=40, slow=slow), OTHERS) for slow in (0, 1)
        ]
        return {"even": small[:1], "slow": small[1:]}
    conversation, code = (
        [(workload, load) for load in LOADS] for workload in ("conversation", "code-poisson")
    )
    both = {
        section: [
            *(Setting(base(*each, slow=slow), OTHERS, SEEDS) for each in conversation),
            *(Setting(base(*each, slow=slow), OTHERS, SEEDS) for each in code),
        ]
        for section, slow in (("even", 0), ("slow", 1))
    }
    kv = {"engines": 4, "engine": "llama-2-13b-a100", "requests": 300}
    return {
        "even": [*both["even"], Setting(base("mixed", 0.9, requests=100))],
        "slow": both["slow"],
        "prefixes": [Setting(base(workload, 0.9), OTHERS, SEEDS) for workload in ("mooncake", "chats")],
        "bursts": [Setting(base("code", 0.9), OTHERS, SEEDS)],
        "sizes": [
            *(Setting(base("conversation", 0.9, engines=n), OTHERS, SEEDS) for n in (2, 4)),
            Setting(base("conversation", 0.9, engines=64), OTHERS),  # takes the whole trace
        ],
        "larry": [Setting(base("code-poisson", 0.9, policy="LARRY"))],
        "kv": [Setting(base("sharegpt-poisson", 0.9, **kv))],
        "stale": [
            Setting(base("conversation", 0.9, report_interval=interval), ("least_request", "llm_d"))
            for interval in STALE
        ],
        "lost": [Setting(base("conversation", 0.7, lost_at=12.0))],
    }


def variants(*, quick: bool) -> dict[str, Setting]:
    """List SAL itself with one part changed each."""
    if quick:
        return {}
    kv = base("sharegpt-poisson", 0.9, engines=4, engine="llama-2-13b-a100", requests=300, release="Gross")
    return {
        "without bookkeeping": Setting(base("conversation", 0.9, bookkeeping=False), ()),
        "KV release gross": Setting(kv, ()),
    }


def unchanged(variant: Setting) -> Setting:
    """Return SAL as it is on the same requests."""
    return replace(variant, case=replace(variant.case, bookkeeping=True, release="Net"))


def grid(*, quick: bool) -> list[Setting]:
    """List SAL and its nearest rivals at the points of the cost model's doubt; all but the first shorter."""
    if quick:
        return []
    shorter = {"conversation": 150, "code-poisson": 100}
    points: list[Setting] = []
    for workload, others in GRIDDED.items():
        points.append(Setting(base(workload, 0.9), others))
        shorter_case = base(workload, 0.9, requests=shorter[workload])
        points += [Setting(doubt(shorter_case), others) for doubt in GRID[1:]]
    return points


def all_cases(
    sections: Mapping[str, Sequence[Setting]], changed: Mapping[str, Setting], points: Sequence[Setting]
) -> list[FleetCase]:
    """List every run of the study, each once."""
    every = [
        *(each for section in sections.values() for each in section),
        *(each for variant in changed.values() for each in (variant, unchanged(variant))),
        *points,
    ]
    return list(dict.fromkeys(case for setting in every for case in setting.cases()))
