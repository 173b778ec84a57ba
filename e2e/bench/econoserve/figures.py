"""EconoServe against tuned stock vLLM on one simulated engine: deadlines kept, latencies, waits, its parts.

Lengths are told with an accuracy of 75 % where nothing else is said; `live` are those that the engine
predicts from its own traffic. Loads are of what default stock sustains.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from e2e.bench.econoserve import cases
from e2e.bench.econoserve.cases import KV, LIVE, OURS
from e2e.bench.report import intervals
from e2e.bench.runs import comparison
from e2e.bench.runs.comparison import Found, Kind
from e2e.bench.runs.engine import DISTSERVE, Case
from headrace_engine.sim import metrics

TARGET = "e2e_2x"
NORMALIZED = "normalized_mean"
SIMILAR = 2.0  # times stock's normalised latency at half load: up to there a rate counts as sustained
PAPER: dict[str, tuple[float, float]] = {
    "rate_of_stock": (2.5, 4.0),
    "rate_of_orca": (22.0, 64.0),
    "rate_of_sarathi": (1.25, 2.25),
    "rate_of_distserve_on_two_gpus": (1.01, 1.33),
    "e2e_2x_attainment_below_oracle_points": (2.0, 2.0),
    "e2e_of_variant_d": (1.19, 1.19),
    "e2e_of_variant_sd": (1.07, 1.07),
    "e2e_of_variant_sdo": (1.29, 1.29),
    "kv_use_above_stock_points": (27.0, 27.0),
    "multires_e2e_of_stock": (0.574, 0.574),
}
"""EconoServe's findings for OPT-13B and ShareGPT where it has them, else their means over models and data."""


def figures(found: Found) -> dict[str, float | dict[str, float]]:
    """Return what `econoserve.json` holds."""
    at = KV.point
    tuned = comparison.best(found, KV, at, NORMALIZED)
    made: dict[str, float] = {}
    for name, kind in (("", OURS), ("_live", LIVE)):
        ours = comparison.runs(KV, at, kind)
        made |= comparison.keyed(
            f"goodput_ratio_e2e_2x_kvbound{name}", comparison.goodput_ratio(found, KV, TARGET, kind)
        )
        for figure, theirs, key in (
            (NORMALIZED, tuned, f"norm_latency_ratio_kvbound{name}"),
            ("wait_max", tuned, f"wait_max_ratio_kvbound{name}"),
            ("wait_max", comparison.runs(KV, at), f"wait_max_ratio_kvbound{name}_of_default"),
        ):
            made |= intervals.keyed(key, comparison.ratio(found, ours, theirs, figure))
        made[f"of_clairvoyant_kvbound{name}"] = min(of_clairvoyant(found, kind))
    for figure in ("e2e", "ttft"):
        made[f"light_load_worst_ratio{'' if figure == 'e2e' else '_ttft'}"] = comparison.light(
            found, cases.SETTINGS, LIVE, f"{figure}_mean"
        )[0]
    made["grid_worst_norm_latency_ratio_kvbound"] = max(ratio for _, ratio in doubts(found))
    return comparison.rounded({**made, "findings": reproduce_findings(found)})  # type: ignore[return-value]


def of_clairvoyant(found: Found, kind: Kind) -> tuple[float, float]:
    """Return goodput and 1 / normalised latency, as shares of what the best clairvoyant reaches in each."""

    def reached(each: Kind) -> tuple[float, float]:
        points = comparison.goodputs(found, KV, TARGET, each)
        latencies = comparison.values(found, comparison.runs(KV, KV.point, each), NORMALIZED)
        return sum(point.load for point in points), 1 / sum(latencies)

    best = [max(each) for each in zip(*map(reached, cases.CLAIRVOYANTS.values()), strict=True)]
    goodput, speed = reached(kind)
    return goodput / best[0], speed / best[1]


def doubts(found: Found) -> Iterator[tuple[str, float]]:
    """Yield normalised latency, ours / the better stock, at the corners of the cost model's doubt."""
    for mixed, overhead in ((1.0, 0.0), *cases.CORNERS):
        case = replace(KV.case(KV.point, 0), mixed=mixed, overhead_ms=overhead)
        best = min(float(found[kind(case)][NORMALIZED]) for kind in cases.doubted_stock())
        yield f"mixed attention x{mixed:g}, +{overhead:g} ms", float(found[OURS(case)][NORMALIZED]) / best


def sustained(found: Found, kind: Kind, loads: Sequence[float] = KV.loads) -> float:
    """Return the load up to which mean normalised latency stays at `SIMILAR` times stock's at half load."""
    limit = SIMILAR * float(found[KV.case(0.5, 0)][NORMALIZED])
    shares = [limit / float(found[kind(KV.case(load, 0))][NORMALIZED]) for load in loads]
    return metrics.goodput(loads, shares, 1.0).load


def reproduce_findings(found: Found) -> dict[str, float]:
    """Return what we get for each of the paper's findings, and as `_paper_low` and `_paper_high` its own."""
    ours = sustained(found, OURS)
    stock, mine = comparison.runs(KV, KV.point), comparison.runs(KV, KV.point, OURS)
    full = comparison.runs(KV, KV.point, cases.published("Full"))
    oracle = comparison.runs(KV, KV.point, cases.econoserve(cases.CLAIRVOYANT))

    def points(more: Sequence[Case], less: Sequence[Case], figure: str) -> float:
        return 100 * (comparison.mean(found, more, figure) - comparison.mean(found, less, figure))

    got = {
        "rate_of_stock": ours / sustained(found, comparison.stock),
        "rate_of_orca": ours / sustained(found, cases.other("Orca"), cases.LOW_LOADS),
        "rate_of_sarathi": ours / sustained(found, cases.other("Sarathi")),
        "rate_of_distserve_on_two_gpus": ours / sustained(found, cases.other(DISTSERVE), cases.PAIR_LOADS),
        "e2e_2x_attainment_below_oracle_points": points(oracle, mine, "met_e2e_2x"),
        "kv_use_above_stock_points": points(mine, stock, "kv_use"),
        "multires_e2e_of_stock": comparison.ratio(
            found, comparison.runs(KV, KV.point, cases.other("MultiRes"), 1), stock[:1], "e2e_mean"
        ).value,
    }
    for variant in ("D", "SD", "SDO"):
        theirs = comparison.runs(KV, KV.point, cases.published(variant))
        got[f"e2e_of_variant_{variant.lower()}"] = comparison.ratio(found, theirs, full, "e2e_mean").value
    made: dict[str, float] = {}
    for name, (low, high) in PAPER.items():
        made |= {name: got[name], f"{name}_paper_low": low, f"{name}_paper_high": high}
    return made
