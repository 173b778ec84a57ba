"""AccelGen against tuned stock vLLM on one simulated engine: targets kept under load, what each part gives.

Targets are TTFT 1 s with a mean TPOT of 50 ms, or, on the mix, what each request asks for (`workloads.MIX`);
there the worst class is judged beside the total. Loads are of what default stock sustains.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from e2e.bench.accelgen import cases
from e2e.bench.accelgen.cases import CODE, MIXED, WORST, accelgen
from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Found, Kind
from e2e.bench.runs.setting import Setting
from e2e.bench.runs.tuning import Tunings
from headrace_engine.sim.metrics import Goodput

STRUGGLING = 0.6  # attainment below which tuned stock is of no use
PAPER: dict[str, tuple[float, float]] = {
    "throughput_of_others": (1.42, 11.21),
    "goodput_of_others": (1.43, 13.71),
    "attainment_above_others_points": (37.0, 90.0),
    "iterations_above_others_points": (37.0, 90.0),
    "others_e2e_of_ours": (1.61, 12.22),
    "goodput_lost_without_order_percent": (52.0, 52.0),
    "goodput_lost_without_chunk_percent": (44.0, 44.0),
    "goodput_lost_without_batch_percent": (27.0, 27.0),
    "iterations_lost_without_order_percent": (52.0, 52.0),
    "iterations_lost_without_chunk_percent": (44.0, 44.0),
    "iterations_lost_without_batch_percent": (27.0, 27.0),
}
ABLATED = {"order": "/Order", "chunk": "/Chunk", "batch": "/Batch"}


@dataclass(frozen=True, slots=True)
class Study:
    """What the study measured. `goodputs` by setting, target, kind and seed."""

    found: Found
    goodputs: Mapping[tuple[str, str, str, int], Goodput]
    tunings: Tunings

    def of(self, setting: Setting, target: str, kind: str) -> list[Goodput]:
        """Return the goodputs of one of `cases.kinds`, of each seed."""
        return [self.goodputs[setting.key, target, kind, seed] for seed in setting.seeds]


def figures(study: Study) -> dict[str, float | dict[str, float]]:
    """Collect the figures that `accelgen.json` holds."""
    found = study.found
    made: dict[str, float] = {}
    for setting in cases.SWEPT:
        for target in cases.targets_of(setting):
            worst = "_worst_class" if target == WORST else ""
            stock = study.of(setting, target, "stock")
            for kind, end in (("accelgen", ""), ("default", "_default_engine")):
                compared = comparison.ratio_of(study.of(setting, target, kind), stock)
                made |= comparison.keyed(f"goodput_ratio_{setting.key}{worst}{end}", compared)
    struggle = struggling(study)
    if struggle is not None:
        load, stocks, attainment = struggle
        made |= {
            "attainment_mixed_where_stock_below_60": attainment,
            "attainment_mixed_of_stock_there": stocks,
            "attainment_mixed_load": load,
        }
    made["tpot_p99_ms_code"] = 1000 * max((tpot for _, tpot in code_tpot(study)), default=0.0)
    for figure in ("e2e", "ttft", "tpot"):
        name = "light_load_worst_ratio" + ("" if figure == "e2e" else f"_{figure}")
        made[name] = max(
            comparison.light(found, [each], accelgen(each), f"{figure}_mean")[0] for each in cases.BESIDE
        )
    for name, ratios in doubts(study):
        made[f"grid_worst_missed_{name}"] = max(ratios)
    made |= tuning.figures(study.tunings)
    findings = reproduce_findings(found)
    return comparison.rounded(  # type: ignore[return-value]
        {**made, "findings": findings["as published"], "findings_ours": findings["ours"]}
    )


def met(found: Found, setting: Setting, load: float, kind: Kind, target: str) -> float:
    """Return the attainment of the first seed there, whether or not the queue only grew."""
    return float(found[comparison.runs(setting, load, kind, 1)[0]][f"met_{target}"])


def struggling(study: Study) -> tuple[float, float, float] | None:
    """Find the lowest load of the mix at which tuned stock is below 60 %: load, its attainment, ours."""
    stock = cases.tuned(MIXED, "stock", "own", study.tunings)
    for load in cases.STEPPED:
        share = met(study.found, MIXED, load, stock, "own")
        if share < STRUGGLING:
            return load, share, met(study.found, MIXED, load, accelgen(MIXED), "own")
    return None


def code_tpot(study: Study) -> list[tuple[float, float]]:
    """Loads of code at which tuned AccelGen met its targets with every seed, and the worst p99 of TPOT."""
    target, made = cases.target_of(CODE), []
    kind = cases.tuned(CODE, "accelgen", target, study.tunings)
    for load in CODE.loads:
        there = [case for case in comparison.runs(CODE, load, kind) if case in study.found]
        if there and min(comparison.attained(study.found[case], target) for case in there) >= comparison.MET:
            made.append((load, max(comparison.values(study.found, there, "tpot_p99"))))
    return made


def doubts(study: Study) -> Iterator[tuple[str, list[float]]]:
    """Yield targets missed, AccelGen / tuned stock, at the corners of the cost model's doubt."""
    targets = [f"met_{cases.target_of(setting)}" for setting, _ in cases.DOUBTED]
    for figure, (name, pairs) in zip(targets, cases.doubted(study.tunings), strict=True):
        missed = [
            [max(1 - float(study.found[case][figure]), comparison.LEAST) for case in pair] for pair in pairs
        ]
        yield name, [ours / stock for stock, ours in missed]


def reproduce_findings(found: Found) -> dict[str, dict[str, float]]:
    """Return what we get for the paper's findings on the mix where KV binds, `as published` and by `ours`.

    `_least` and `_most` are over stock, Orca, FastServe and Sarathi; `_paper_low` and `_paper_high` are the
    paper's.
    """
    setting = cases.PARTS_SHORT_OF_KV
    case, kinds = setting.case(setting.point, 0), cases.ablations(setting)
    made = {}
    for name, whole, prefix in (
        ("as published", kinds["as published"], "as published, "),
        ("ours", accelgen(setting), ""),
    ):
        without = {part: found[kinds[f"{prefix}{ablation}"](case)] for part, ablation in ABLATED.items()}
        others = [found[kind(case)] for kind in (comparison.stock, *map(comparison.other, cases.RIVALS))]
        made[name] = _findings(found[whole(case)], others, without)
    return made


def _findings(
    ours: Mapping[str, float | str],
    others: list[Mapping[str, float | str]],
    without: Mapping[str, Mapping[str, float | str]],
) -> dict[str, float]:
    def times(figure: str) -> list[float]:
        return [float(ours[figure]) / max(float(each[figure]), comparison.LEAST) for each in others]

    def points(figure: str) -> list[float]:
        return [100 * (float(ours[figure]) - float(each[figure])) for each in others]

    got = {
        "throughput_of_others": times("tokens_per_second"),
        "goodput_of_others": times("met_own"),
        "attainment_above_others_points": points("met_own"),
        "iterations_above_others_points": points("met_own_iterations"),
        "others_e2e_of_ours": [1 / each for each in times("e2e_mean")],
    }
    made: dict[str, float] = {}
    for name, numbers in got.items():
        made |= {f"{name}_least": min(numbers), f"{name}_most": max(numbers)}
    for name, each in without.items():
        whole = float(ours["met_own_iterations"])
        lost = 100 * (1 - float(each["met_own_iterations"]) / whole)
        made[f"iterations_lost_without_{name}_percent"] = lost
        made[f"goodput_lost_without_{name}_percent"] = 100 * (
            1 - float(each["met_own"]) / float(ours["met_own"])
        )
    for name, (low, high) in PAPER.items():
        made |= {f"{name}_paper_low": low, f"{name}_paper_high": high}
    return made
