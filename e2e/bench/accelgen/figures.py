"""AccelGen against tuned stock vLLM on one simulated engine: targets kept under load, what each part gives.

Targets are TTFT 1 s with a mean TPOT of 50 ms, or, on the mix, what each request asks for (`workloads.MIX`).
Loads are of what default stock sustains.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from e2e.bench.accelgen import cases
from e2e.bench.accelgen.cases import CODE, MIXED, PARTS, accelgen
from e2e.bench.runs import comparison, search
from e2e.bench.runs.comparison import Found, Kind
from e2e.bench.runs.setting import Setting
from headrace_engine.sim.metrics import Goodput

Goodputs = Mapping[tuple[str, str, int], Goodput]
STRUGGLING = 0.6  # attainment below which tuned stock is of no use
PAPER: dict[str, tuple[float, float]] = {
    "throughput_of_others": (1.42, 11.21),
    "goodput_of_others": (1.43, 13.71),
    "attainment_above_others_points": (37.0, 90.0),
    "others_e2e_of_ours": (1.61, 12.22),
    "goodput_lost_without_order_percent": (52.0, 52.0),
    "goodput_lost_without_chunk_percent": (44.0, 44.0),
    "goodput_lost_without_batch_percent": (27.0, 27.0),
}
ABLATED = {"order": "/Order", "chunk": "/Chunk", "batch": "/Batch"}


def goodputs_of(goodputs: Goodputs, setting: Setting, name: str) -> list[Goodput]:
    """Return the goodputs of `tuned` stock or `ours`, for each seed."""
    return [goodputs[setting.key, name, seed] for seed in setting.seeds]


def figures(found: Found, goodputs: Goodputs) -> dict[str, float | dict[str, float]]:
    """Collect the figures that `accelgen.json` holds."""
    made: dict[str, float] = {}
    for setting in cases.SWEPT:
        ours, tuned = (goodputs_of(goodputs, setting, name) for name in ("ours", "tuned"))
        made |= comparison.keyed(f"goodput_ratio_{setting.key}", comparison.ratio_of(ours, tuned))
    struggle = struggling(found)
    if struggle is not None:
        load, stock, attainment = struggle
        made |= {
            "attainment_mixed_where_stock_below_60": attainment,
            "attainment_mixed_of_stock_there": stock,
        }
        made["attainment_mixed_load"] = load
    made["tpot_p99_ms_code"] = 1000 * max(tpot for _, tpot in code_tpot(found))
    for figure in ("e2e", "ttft", "tpot"):
        name = "light_load_worst_ratio" + ("" if figure == "e2e" else f"_{figure}")
        made[name] = max(
            comparison.light(found, [each], accelgen(each), f"{figure}_mean")[0] for each in cases.BESIDE
        )
    for name, ratios in doubts(found):
        made[f"grid_worst_missed_{name}"] = max(ratios)
    return comparison.rounded({**made, "findings": reproduce_findings(found)})  # type: ignore[return-value]


def attained(found: Found, setting: Setting, load: float, kind: Kind) -> list[float]:
    """Return the share of requests that met the setting's targets, of each seed that was run there."""
    made = [case for case in comparison.runs(setting, load, kind) if case in found]
    return comparison.values(found, made, f"met_{cases.target_of(setting)}")


def struggling(found: Found) -> tuple[float, float, float] | None:
    """Find the lowest load of the mix at which tuned stock is below 60 %: load, its attainment, ours."""
    for load in cases.STEPPED:
        stock = max(attained(found, MIXED, load, kind)[0] for kind in comparison.choices(MIXED))
        if stock < STRUGGLING:
            return load, stock, attained(found, MIXED, load, accelgen(MIXED))[0]
    return None


def code_tpot(found: Found) -> list[tuple[float, float]]:
    """Loads of code at which ours was run and met its targets with every seed, and the worst p99 of TPOT."""
    kind, made = accelgen(CODE), []
    for load in CODE.loads:
        shares = attained(found, CODE, load, kind)
        if shares and min(shares) >= search.MET:
            there = [case for case in comparison.runs(CODE, load, kind) if case in found]
            made.append((load, max(comparison.values(found, there, "tpot_p99"))))
    return made


def doubts(found: Found) -> Iterator[tuple[str, list[float]]]:
    """Yield targets missed, ours / the best stock, at the corners of the cost model's doubt."""
    for setting, load in cases.DOUBTED:
        figure = f"met_{cases.target_of(setting)}"
        ratios = []
        for mixed, overhead in cases.CORNERS:
            case = replace(setting.case(load, 0), mixed=mixed, overhead_ms=overhead)
            stock = max(float(found[kind(case)][figure]) for kind in comparison.choices(setting))
            ours = float(found[accelgen(setting)(case)][figure])
            ratios.append(max(1 - ours, comparison.LEAST) / max(1 - stock, comparison.LEAST))
        yield setting.at(load), ratios


def reproduce_findings(found: Found) -> dict[str, float]:
    """Return what we get for the paper's findings on the mix, over stock, Orca, FastServe and Sarathi.

    `_least` and `_most` are over those systems, `_paper_low` and `_paper_high` are the paper's.
    """
    case = PARTS.case(PARTS.point, 0)
    ours = found[accelgen(PARTS)(case)]
    others = [found[kind(case)] for kind in (comparison.stock, *map(cases.other, cases.RIVALS))]

    def times(figure: str) -> list[float]:
        return [float(ours[figure]) / max(float(each[figure]), comparison.LEAST) for each in others]

    got = {
        "throughput_of_others": times("tokens_per_second"),
        "goodput_of_others": times("met_own"),
        "attainment_above_others_points": [
            100 * (float(ours["met_own"]) - float(each["met_own"])) for each in others
        ],
        "others_e2e_of_ours": [1 / each for each in times("e2e_mean")],
    }
    made: dict[str, float] = {}
    for name, numbers in got.items():
        made |= {f"{name}_least": min(numbers), f"{name}_most": max(numbers)}
    for name, ablation in ABLATED.items():
        without = found[cases.ablations()[ablation](case)]
        lost = 1 - float(without["met_own"]) / float(ours["met_own"])
        made[f"goodput_lost_without_{name}_percent"] = 100 * lost
    for name, (low, high) in PAPER.items():
        made |= {f"{name}_paper_low": low, f"{name}_paper_high": high}
    return made
