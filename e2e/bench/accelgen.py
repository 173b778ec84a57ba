"""AccelGen against tuned stock vLLM on one simulated engine: targets kept under load, what each part gives.

Targets are TTFT 1 s with a mean TBT of 50 ms, or, on the mix, what each request asks for (`workloads.MIX`).
Loads are of what default stock sustains.
"""

from collections.abc import Iterator
from dataclasses import replace

from e2e.bench import accelgen_cases as cases
from e2e.bench import results, study, versus
from e2e.bench.accelgen_cases import CODE, MIXED, accelgen
from e2e.bench.cases import measure
from e2e.bench.larry_cases import Setting
from e2e.bench.versus import Found, Kind

COMMAND = "python -m e2e.bench.accelgen"
MET = 0.9
STRUGGLING = 0.6  # attainment below which tuned stock is of no use
PAPER: dict[str, tuple[float, float]] = {
    "throughput_of_others": (1.42, 11.21),
    "goodput_of_others": (1.43, 13.71),
    "attainment_above_others_points": (37.0, 90.0),
    "others_jct_of_ours": (1.61, 12.22),
    "goodput_lost_without_order_percent": (52.0, 52.0),
    "goodput_lost_without_chunk_percent": (44.0, 44.0),
    "goodput_lost_without_batch_percent": (27.0, 27.0),
}
ABLATED = {"order": "/Order", "chunk": "/Chunk", "batch": "/Batch"}


def main() -> None:
    """Run the study."""
    run(study.options(__doc__))


def run(options: study.Options) -> None:
    """Simulate what is missing, then write figures, page and picture."""
    from e2e.bench import accelgen_page  # noqa: PLC0415  it needs what is here

    if options.quick:
        tiny = replace(MIXED, loads=(0.5, 1.0), others=(), seeds=(0,), requests=100)
        found = measure(versus.sweep(tiny, (accelgen(tiny),)), "accelgen, quick", options.workers)
        accelgen_page.attainment(found, options.folder, (tiny,))
        return
    found = measure(cases.everything(), "accelgen", options.workers)
    print(results.write("accelgen", COMMAND, figures(found), simulated=True, folder=options.folder))
    print(accelgen_page.write(found, options.folder))


def figures(found: Found) -> dict[str, float | dict[str, float]]:
    """What `accelgen.json` holds."""
    made: dict[str, float] = {}
    for setting in cases.SWEPT:
        against = versus.goodput_ratio(found, setting, cases.target_of(setting), accelgen(setting))
        made |= versus.keyed(f"goodput_ratio_{setting.key}", against)
    struggle = struggling(found)
    if struggle is not None:
        load, stock, ours = struggle
        made |= {"attainment_mixed_where_stock_below_60": ours, "attainment_mixed_of_stock_there": stock}
        made["attainment_mixed_load"] = load
    made["tbt_p99_ms_code"] = 1000 * max(tbt for _, tbt in code_tbt(found))
    for figure in ("jct", "ttft", "tbt"):
        name = "light_load_worst_ratio" + ("" if figure == "jct" else f"_{figure}")
        made[name] = max(
            versus.light(found, [each], accelgen(each), f"{figure}_mean")[0] for each in cases.SETTINGS
        )
    for name, ratios in doubts(found):
        made[f"grid_worst_missed_{name}"] = max(ratios)
    return versus.rounded({**made, "claims": claims(found)})  # type: ignore[return-value]


def attained(found: Found, setting: Setting, load: float, kind: Kind) -> float:
    """Share of requests that met the setting's targets, mean over seeds."""
    shares = versus.values(found, versus.runs(setting, load, kind), f"met_{cases.target_of(setting)}")
    return sum(shares) / len(shares)


def struggling(found: Found) -> tuple[float, float, float] | None:
    """The lowest load of the mix at which tuned stock is below 60 %: load, its attainment there, ours."""
    for load in MIXED.loads:
        stock = versus.best_met(found, MIXED, load, "asked")
        if stock < STRUGGLING:
            return load, stock, attained(found, MIXED, load, accelgen(MIXED))
    return None


def code_tbt(found: Found) -> list[tuple[float, float]]:
    """Loads of code at which ours meets its targets, else the lowest, each with the worst p99 of TBT."""
    kind = accelgen(CODE)
    kept = [load for load in CODE.loads if attained(found, CODE, load, kind) >= MET] or [CODE.loads[0]]
    return [(load, max(versus.values(found, versus.runs(CODE, load, kind), "tbt_p99"))) for load in kept]


def doubts(found: Found) -> Iterator[tuple[str, list[float]]]:
    """Targets missed, ours / the best stock, at the corners of the cost model's doubt."""
    for setting, load in cases.DOUBTED:
        figure = f"met_{cases.target_of(setting)}"
        ratios = []
        for mixed, overhead in ((1.0, 0.0), *cases.CORNERS):
            case = replace(setting.case(load, 0), mixed=mixed, overhead_ms=overhead)
            stock = max(float(found[kind(case)][figure]) for kind in versus.choices(setting))
            ours = float(found[accelgen(setting)(case)][figure])
            ratios.append(max(1 - ours, versus.LEAST) / max(1 - stock, versus.LEAST))
        yield setting.at(load), ratios


def claims(found: Found) -> dict[str, float]:
    """What we get for the paper's claims on the mix, over stock, Orca, FastServe and Sarathi.

    `_least` and `_most` are over those systems, `_paper_low` and `_paper_high` are the paper's.
    """
    case = MIXED.case(MIXED.point, 0)
    ours = found[accelgen(MIXED)(case)]
    others = [found[kind(case)] for kind in (versus.stock, *map(cases.other, cases.RIVALS))]

    def times(figure: str) -> list[float]:
        return [float(ours[figure]) / max(float(each[figure]), versus.LEAST) for each in others]

    got = {
        "throughput_of_others": times("tokens_per_second"),
        "goodput_of_others": times("met_asked"),
        "attainment_above_others_points": [
            100 * (float(ours["met_asked"]) - float(each["met_asked"])) for each in others
        ],
        "others_jct_of_ours": [1 / each for each in times("jct_mean")],
    }
    made: dict[str, float] = {}
    for name, numbers in got.items():
        made |= {f"{name}_least": min(numbers), f"{name}_most": max(numbers)}
    for name, ablation in ABLATED.items():
        without = found[cases.ablations()[ablation](case)]
        lost = 1 - float(without["met_asked"]) / float(ours["met_asked"])
        made[f"goodput_lost_without_{name}_percent"] = 100 * lost
    for name, (low, high) in PAPER.items():
        made |= {f"{name}_paper_low": low, f"{name}_paper_high": high}
    return made


if __name__ == "__main__":
    main()
