"""EconoServe against tuned stock vLLM on one simulated engine: deadlines kept, latencies, waits, its parts.

Lengths are told with an accuracy of 75 % where nothing else is said; `live` are those that the engine
predicts from its own traffic. Loads are of what default stock sustains.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from e2e.bench import econoserve_cases as cases
from e2e.bench import intervals, results, study, versus
from e2e.bench.cases import DISTSERVE, Case, measure
from e2e.bench.econoserve_cases import KV, LIVE, OURS
from e2e.bench.versus import Found, Kind
from headrace_engine.sim import metrics

COMMAND = "python -m e2e.bench.econoserve"
TARGET = "jct2"
NORMALIZED = "normalized_mean"
SIMILAR = 2.0  # times stock's normalised latency at half load: up to there a rate counts as sustained
PAPER: dict[str, tuple[float, float]] = {
    "rate_of_stock": (2.5, 4.0),
    "rate_of_orca": (22.0, 64.0),
    "rate_of_sarathi": (1.25, 2.25),
    "rate_of_distserve_on_two_gpus": (1.01, 1.33),
    "jct2_attainment_below_oracle_points": (2.0, 2.0),
    "jct_of_variant_d": (1.19, 1.19),
    "jct_of_variant_sd": (1.07, 1.07),
    "jct_of_variant_sdo": (1.29, 1.29),
    "kv_use_above_stock_points": (27.0, 27.0),
    "multires_jct_of_stock": (0.574, 0.574),
}
"""EconoServe's claims for OPT-13B and ShareGPT where it has them, else their means over models and data."""


def main() -> None:
    """Run the study."""
    run(study.options(__doc__))


def run(options: study.Options) -> None:
    """Simulate what is missing, then write figures, page and picture."""
    from e2e.bench import econoserve_page  # noqa: PLC0415  it needs what is here

    if options.quick:
        tiny = replace(KV, loads=(0.5, 1.0), others=(), seeds=(0,), requests=100)
        found = measure(versus.sweep(tiny, (OURS, LIVE)), "econoserve, quick", options.workers)
        econoserve_page.attainment(found, options.folder, tiny)
        return
    found = measure(cases.everything(), "econoserve", options.workers)
    print(results.write("econoserve", COMMAND, figures(found), simulated=True, folder=options.folder))
    print(econoserve_page.write(found, options.folder))


def figures(found: Found) -> dict[str, float | dict[str, float]]:
    """What `econoserve.json` holds."""
    at = KV.point
    tuned = versus.best(found, KV, at, NORMALIZED)
    made: dict[str, float] = {}
    for name, kind in (("", OURS), ("_live", LIVE)):
        ours = versus.runs(KV, at, kind)
        made |= versus.keyed(
            f"goodput_ratio_jct2x_kvbound{name}", versus.goodput_ratio(found, KV, TARGET, kind)
        )
        for figure, theirs, key in (
            (NORMALIZED, tuned, f"norm_latency_ratio_kvbound{name}"),
            ("wait_max", tuned, f"wait_max_ratio_kvbound{name}"),
            ("wait_max", versus.runs(KV, at), f"wait_max_ratio_kvbound{name}_of_default"),
        ):
            made |= intervals.keyed(key, versus.ratio(found, ours, theirs, figure))
        made[f"of_clairvoyant_kvbound{name}"] = min(of_clairvoyant(found, kind))
    for figure in ("jct", "ttft"):
        made[f"light_load_worst_ratio{'' if figure == 'jct' else '_ttft'}"] = versus.light(
            found, cases.SETTINGS, LIVE, f"{figure}_mean"
        )[0]
    made["grid_worst_norm_latency_ratio_kvbound"] = max(ratio for _, ratio in doubts(found))
    return versus.rounded({**made, "claims": claims(found)})  # type: ignore[return-value]


def of_clairvoyant(found: Found, kind: Kind) -> tuple[float, float]:
    """Goodput and 1 / normalised latency, as shares of what the best clairvoyant reaches in each."""

    def reached(each: Kind) -> tuple[float, float]:
        points = versus.goodputs(found, KV, TARGET, each)
        latencies = versus.values(found, versus.runs(KV, KV.point, each), NORMALIZED)
        return sum(point.load for point in points), 1 / sum(latencies)

    best = [max(each) for each in zip(*map(reached, cases.CLAIRVOYANTS.values()), strict=True)]
    goodput, speed = reached(kind)
    return goodput / best[0], speed / best[1]


def doubts(found: Found) -> Iterator[tuple[str, float]]:
    """Normalised latency, ours / the better stock, at the corners of the cost model's doubt."""
    for mixed, overhead in ((1.0, 0.0), *cases.CORNERS):
        case = replace(KV.case(KV.point, 0), mixed=mixed, overhead_ms=overhead)
        best = min(float(found[kind(case)][NORMALIZED]) for kind in cases.doubted_stock())
        yield f"mixed attention x{mixed:g}, +{overhead:g} ms", float(found[OURS(case)][NORMALIZED]) / best


def sustained(found: Found, kind: Kind, loads: Sequence[float] = KV.loads) -> float:
    """The load up to which mean normalised latency stays at `SIMILAR` times stock's at half load."""
    limit = SIMILAR * float(found[KV.case(0.5, 0)][NORMALIZED])
    shares = [limit / float(found[kind(KV.case(load, 0))][NORMALIZED]) for load in loads]
    return metrics.goodput(loads, shares, 1.0).load


def claims(found: Found) -> dict[str, float]:
    """What we get for each of the paper's claims; `_paper_low` and `_paper_high` are the paper's."""
    ours = sustained(found, OURS)
    stock, mine = versus.runs(KV, KV.point), versus.runs(KV, KV.point, OURS)
    full = versus.runs(KV, KV.point, cases.published("Full"))
    oracle = versus.runs(KV, KV.point, cases.econoserve(cases.CLAIRVOYANT))

    def points(more: Sequence[Case], less: Sequence[Case], figure: str) -> float:
        return 100 * (versus.mean(found, more, figure) - versus.mean(found, less, figure))

    got = {
        "rate_of_stock": ours / sustained(found, versus.stock),
        "rate_of_orca": ours / sustained(found, cases.other("Orca"), cases.LOW_LOADS),
        "rate_of_sarathi": ours / sustained(found, cases.other("Sarathi")),
        "rate_of_distserve_on_two_gpus": ours / sustained(found, cases.other(DISTSERVE), cases.PAIR_LOADS),
        "jct2_attainment_below_oracle_points": points(oracle, mine, "met_jct2"),
        "kv_use_above_stock_points": points(mine, stock, "kv_use"),
        "multires_jct_of_stock": versus.ratio(
            found, versus.runs(KV, KV.point, cases.other("MultiRes"), 1), stock[:1], "jct_mean"
        ).value,
    }
    for variant in ("D", "SD", "SDO"):
        theirs = versus.runs(KV, KV.point, cases.published(variant))
        got[f"jct_of_variant_{variant.lower()}"] = versus.ratio(found, theirs, full, "jct_mean").value
    made: dict[str, float] = {}
    for name, (low, high) in PAPER.items():
        made |= {name: got[name], f"{name}_paper_low": low, f"{name}_paper_high": high}
    return made


if __name__ == "__main__":
    main()
