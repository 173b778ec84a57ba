"""SAL against other balancers on simulated fleets: load, workload, size, slow engines, stale reports, losses.

Figures are SAL / other, so below 1 SAL is better; `e2e/bench/fleet_cases.py` says what is simulated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from e2e.bench import intervals, plots, report, results, study
from e2e.bench.cases import GRID
from e2e.bench.fleet_cases import FleetCase, measure
from e2e.bench.intervals import Estimate
from e2e.bench.pool import Figures

COMMAND = "python -m e2e.bench.sal"
LOADS = (0.7, 0.9)
SEEDS, ONE = (0, 1), (0,)
REQUIRED = ("random", "round_robin", "power_of_two", "least_request", "token_kv")
OTHERS = (*REQUIRED, "token_load", "littles_law")
FEW = ("round_robin", "power_of_two", "least_request", "token_load")
TWO = ("round_robin", "least_request")
STALE = (0.05, 1.0, 5.0)  # seconds between reports
NAMES = {
    "sal": "SAL",
    "random": "Random",
    "round_robin": "RoundRobin",
    "power_of_two": "PowerOfTwo",
    "least_request": "LeastRequest",
    "token_kv": "token load + KV",
    "token_load": "token load",
    "littles_law": "Little's law",
}
INTRODUCTION = (
    "SAL / other: below 1 SAL is better. 95 % intervals over seeds. Arrivals: Azure's conversation "
    "trace as recorded, its code lengths at random times (`code-poisson`) or as recorded (`code`); both, "
    "`mixed`."
)
Found = Mapping[FleetCase, Figures]


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of cases that differ in balancer and seed only."""

    case: FleetCase
    others: Sequence[str] = OTHERS
    seeds: Sequence[int] = SEEDS

    def cases(self) -> list[FleetCase]:
        """All of them."""
        return [self.of(balancer, seed) for balancer in ("sal", *self.others) for seed in self.seeds]

    def of(self, balancer: str, seed: int) -> FleetCase:
        """One of them."""
        return replace(self.case, balancer=balancer, seed=seed)

    def ratio(self, found: Found, other: str, figure: str = "ttft_mean") -> Estimate:
        """SAL / other."""
        ours, theirs = (
            [float(found[self.of(b, seed)][figure]) for seed in self.seeds] for b in ("sal", other)
        )
        return intervals.ratio(ours, theirs)

    def mean(self, found: Found, balancer: str, figure: str) -> float:
        """Over the seeds."""
        values = [float(found[self.of(balancer, seed)][figure]) for seed in self.seeds]
        return sum(values) / len(values)


def base(workload: str, load: float, **changes: object) -> FleetCase:
    """SAL on a fleet of 16, long enough that most of the run is past the start."""
    requests = 200 if workload.startswith("code") else 300
    return replace(FleetCase(workload, "sal", load, requests=requests), **changes)  # type: ignore[arg-type]


def settings(*, quick: bool) -> dict[str, list[Setting]]:
    """What is simulated, by section."""
    if quick:
        small = [
            Setting(base("conversation", 0.9, engines=2, requests=40, slow=slow), seeds=(0,))
            for slow in (0, 1)
        ]
        return {"even": small[:1], "slow": small[1:]}
    both = [(workload, load) for workload in ("conversation", "code-poisson") for load in LOADS]
    kv = {"engines": 4, "engine": "llama-2-13b-a100"}
    return {
        "even": [
            *(Setting(base(*each)) for each in both),
            *(Setting(base("mixed", load), (*FEW, "token_kv"), ONE) for load in LOADS),
        ],
        "slow": [Setting(base(*each, slow=1), REQUIRED) for each in both],
        "bursts": [Setting(base("code", load), FEW, ONE) for load in LOADS],
        "sizes": [
            *(Setting(base("conversation", load, engines=n), FEW, ONE) for n in (2, 4) for load in LOADS),
            *(Setting(base("conversation", load, engines=64, requests=150), TWO, ONE) for load in LOADS),
        ],
        "larry": [Setting(base("code-poisson", load, policy="LARRY"), FEW, ONE) for load in LOADS],
        "kv": [Setting(base("sharegpt-poisson", load, **kv), FEW, ONE) for load in LOADS],
        "stale": [Setting(base("conversation", 0.9, looks=looks), TWO, ONE) for looks in STALE],
        "lost": [Setting(base("conversation", 0.7, lost_at=12.0), TWO, ONE)],
    }


def variants(*, quick: bool) -> dict[str, Setting]:
    """SAL itself, changed."""
    if quick:
        return {}
    kv = base("sharegpt-poisson", 0.9, engines=4, engine="llama-2-13b-a100", release="Gross")
    return {
        "without bookkeeping": Setting(base("conversation", 0.9, bookkeeping=False), (), ONE),
        "KV release gross": Setting(kv, (), ONE),
    }


def grid(*, quick: bool) -> list[Setting]:
    """SAL and its nearest rival on the nine points of the cost model's uncertainty."""
    if quick:
        return []
    return [
        Setting(base("code-poisson", 0.9, mixed=mixed, overhead_ms=overhead), ("least_request",), ONE)
        for mixed, overhead in GRID
    ]


def run(options: study.Options) -> None:
    """Simulate all of it, and write figures, tables and pictures."""
    sections, changed, points = (
        settings(quick=options.quick),
        variants(quick=options.quick),
        grid(quick=options.quick),
    )
    every = [*(each for section in sections.values() for each in section), *changed.values(), *points]
    cases = list(dict.fromkeys(case for setting in every for case in setting.cases()))
    found = measure(cases, "SAL", options.workers)
    figures = headline(sections, found)
    if points:
        worst_point = max(point.ratio(found, "least_request").value for point in points)
        figures["grid_worst_ttft_mean_ratio_least_request_code_09"] = worst_point
    results.write("sal", COMMAND, figures, simulated=True, folder=options.folder)
    picture(sections, found, options)
    page(sections, changed, points, found, options)


def headline(sections: Mapping[str, Sequence[Setting]], found: Found) -> dict[str, float]:
    """The figures by name: conversation without a suffix, the others with theirs."""
    figures: dict[str, float] = {}
    for section, suffix in (("even", ""), ("slow", "_slow")):
        for setting in sections[section]:
            name = setting.case.workload.partition("-")[0]
            workload = "" if name == "conversation" else f"_{name}"
            load = f"{round(setting.case.load * 10):02d}"
            for other in setting.others:
                for figure in ("ttft_mean", "ttft_p95", "jct_mean"):
                    key = f"{figure}_ratio_{other}{workload}_{load}{suffix}"
                    figures[key] = setting.ratio(found, other, figure).value
    return figures


def picture(sections: Mapping[str, Sequence[Setting]], found: Found, options: study.Options) -> None:
    """Mean TTFT of SAL over that of each other balancer."""
    groups = {
        f"{label(setting)}": {NAMES[other]: setting.ratio(found, other) for other in setting.others}
        for section in ("even", "slow")
        for setting in sections[section]
        if setting.case.load == 0.9
    }
    plots.ratios(
        options.folder / "sal.svg",
        "SAL's mean TTFT over that of other balancers, at 0.9 load",
        "Simulated; 16 engines of Llama-3-8B on H100 unless said; dots left of 1: SAL is faster.",
        groups,
        x_label="mean TTFT, SAL / other",
    )


def label(setting: Setting) -> str:
    """What is special about a setting."""
    case = setting.case
    parts = [case.workload, f"load {case.load:g}"]
    if case.engines != 16:
        parts.append(f"{case.engines} engines")
    if case.slow:
        parts.append("one at half speed")
    if case.policy != "FCFS":
        parts.append(f"{case.policy} inside")
    if case.looks != STALE[0]:
        parts.append(f"reports every {case.looks:g} s")
    if case.lost_at:
        parts.append("one engine lost")
    return ", ".join(parts)


def page(
    sections: Mapping[str, Sequence[Setting]],
    changed: Mapping[str, Setting],
    points: Sequence[Setting],
    found: Found,
    options: study.Options,
) -> None:
    """Tables."""
    titles = {
        "even": "Equal engines",
        "slow": "One engine at half speed",
        "bursts": "Code completion as recorded: bursts that fill every engine",
        "sizes": "Fleets of 2, 4 and 64",
        "larry": "With LARRY inside the engines",
        "kv": "Where KV cache binds: ShareGPT lengths, Llama-2-13B on A100, 4 engines",
        "stale": "Reports that come late",
        "lost": "An engine lost on the way",
    }
    parts = [
        INTRODUCTION,
        report.picture(options.folder / "sal.svg", "Mean TTFT of SAL over that of other balancers."),
        worst(sections, found),
    ]
    for name, rows in sections.items():
        parts += [
            f"## {titles[name]}",
            table(rows, found, "ttft_mean"),
            "p95:",
            table(rows, found, "ttft_p95"),
        ]
        if name == "lost":
            parts.append(losses(rows, found))
    if changed:
        parts += ["## SAL without its parts", variant_table(sections, changed, found)]
    if points:
        parts += ["## Over the cost model's uncertainty", grid_table(points, found)]
    report.page("sal", "SAL on simulated fleets", *parts, folder=options.folder)


def table(rows: Iterable[Setting], found: Found, figure: str) -> str:
    """SAL's own value in milliseconds, and its ratio to each other balancer."""
    settings_ = list(rows)
    others = list(dict.fromkeys(other for row in settings_ for other in row.others))
    body: list[list[report.Cell]] = [
        [
            label(row),
            1000 * row.mean(found, "sal", figure),
            *(row.ratio(found, other, figure) if other in row.others else None for other in others),
        ]
        for row in settings_
    ]
    return report.table(["", "SAL, ms", *(NAMES[other] for other in others)], body)


def losses(rows: Iterable[Setting], found: Found) -> str:
    """Requests lost with the engine."""
    return report.table(
        [
            "requests lost, of those in the middle of the run",
            *(NAMES[b] for b in ("sal", *next(iter(rows)).others)),
        ],
        [[label(row), *(row.mean(found, b, "lost") for b in ("sal", *row.others))] for row in rows],
    )


def worst(sections: Mapping[str, Sequence[Setting]], found: Found) -> str:
    """Where SAL does not win, in words."""
    behind = [
        f"- {label(row)}: {NAMES[other]}, {figure.replace('_', ' ').replace('ttft', 'TTFT')} {estimate}"
        for rows in sections.values()
        for row in rows
        for other in row.others
        for figure in ("ttft_mean", "ttft_p95")
        if (estimate := row.ratio(found, other, figure)).value >= 1
    ]
    if not behind:
        return "SAL has the lowest mean and p95 TTFT in every setting below."
    return "SAL does not win here:\n\n" + "\n".join(behind)


def variant_table(
    sections: Mapping[str, Sequence[Setting]], changed: Mapping[str, Setting], found: Found
) -> str:
    """Each change against SAL as it is."""
    body: list[list[report.Cell]] = []
    for name, setting in changed.items():
        usual = replace(setting.case, bookkeeping=True, release="Net")
        plain = next(each for rows in sections.values() for each in rows if each.case == usual)
        body.append(
            [
                f"{name} ({label(setting)})",
                *(1000 * plain.mean(found, "sal", figure) for figure in ("ttft_mean", "ttft_p95")),
                *(1000 * setting.mean(found, "sal", figure) for figure in ("ttft_mean", "ttft_p95")),
            ]
        )
    return report.table(["", "SAL: mean TTFT, ms", "p95", "changed: mean TTFT, ms", "p95"], body)


def grid_table(points: Sequence[Setting], found: Found) -> str:
    """The nine points."""
    return report.table(
        ["mixed-attention factor, overhead", *(NAMES[other] for other in points[0].others)],
        [
            [f"{p.case.mixed:g}, {p.case.overhead_ms:g} ms", *(p.ratio(found, other) for other in p.others)]
            for p in points
        ],
    )


def main() -> None:
    """Run the study by its command line."""
    run(study.options(__doc__))


if __name__ == "__main__":
    main()
