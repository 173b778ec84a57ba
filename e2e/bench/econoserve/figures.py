"""EconoServe against tuned stock vLLM on one simulated engine: deadlines kept, latencies, waits, its parts.

`live` lengths, the product's, are those that the engine predicts from its own traffic; `told` ones are right
for 75 % of the requests, as the paper's. Loads are of what default stock sustains.
"""

from collections.abc import Iterator, Sequence

from e2e.bench.econoserve import cases
from e2e.bench.econoserve.cases import GOODPUT, KV, LATENCY, LIVE, PUBLISHED, TARGET, TOLD
from e2e.bench.report import intervals
from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Found, Kind
from e2e.bench.runs.engine import DISTSERVE, Case
from e2e.bench.runs.tuning import Tunings
from headrace_engine.sim import metrics

NORMALIZED = LATENCY
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


def figures(found: Found, tunings: Tunings) -> dict[str, float | dict[str, float]]:
    """Return what `econoserve.json` holds."""
    compared = cases.compared(tunings)
    stock = comparison.goodputs(found, KV, TARGET, cases.tuned_stock(KV, GOODPUT, tunings))
    made: dict[str, float] = {}
    for name, end in (
        ("live", "_live"),
        ("live, default engine", "_live_default_engine"),
        ("75 % right", ""),
    ):
        ours = comparison.goodputs(found, KV, TARGET, compared[name])
        made |= comparison.keyed(f"goodput_ratio_e2e_2x_kvbound{end}", comparison.ratio_of(ours, stock))
        made[f"of_clairvoyant_kvbound{end}"] = min(of_clairvoyant(found, compared[name], tunings))
    best, default = (
        comparison.runs(KV, KV.point, kind)
        for kind in (cases.tuned_stock(KV, LATENCY, tunings), comparison.stock)
    )
    for kind, end in (
        (cases.tuned(LIVE, KV, LATENCY, tunings), "_live"),
        (LIVE, "_live_default_engine"),
        (TOLD, ""),
    ):
        runs = comparison.runs(KV, KV.point, kind)
        for figure, theirs, key in (
            (NORMALIZED, best, f"norm_latency_ratio_kvbound{end}"),
            ("wait_max", best, f"wait_max_ratio_kvbound{end}"),
            ("wait_max", default, f"wait_max_ratio_kvbound{end}_of_default"),
        ):
            made |= intervals.keyed(key, comparison.ratio(found, runs, theirs, figure))
    for figure in ("e2e", "ttft"):
        made[f"light_load_worst_ratio{'' if figure == 'e2e' else '_ttft'}"] = comparison.light(
            found, cases.SETTINGS, LIVE, f"{figure}_mean"
        )[0]
    made["grid_worst_norm_latency_ratio_kvbound"] = max(ratio for _, ratio in doubts(found, tunings))
    made |= tuning.figures(tunings)
    findings = {name: reproduce_findings(found, *each) for name, each in BY.items()}
    return comparison.rounded(  # type: ignore[return-value]
        {**made, "findings": findings["as published"], "findings_ours": findings["ours"]}
    )


def of_clairvoyant(found: Found, kind: Kind, tunings: Tunings) -> tuple[float, float]:
    """Return goodput and 1 / normalised latency, as shares of what the best clairvoyant reaches in each."""

    def reached(each: Kind) -> tuple[float, float]:
        points = comparison.goodputs(found, KV, TARGET, each)
        latencies = comparison.values(found, comparison.runs(KV, KV.point, each), NORMALIZED)
        return sum(point.load for point in points), 1 / sum(latencies)

    best = [max(each) for each in zip(*map(reached, cases.clairvoyants(tunings).values()), strict=True)]
    goodput, speed = reached(kind)
    return goodput / best[0], speed / best[1]


def doubts(found: Found, tunings: Tunings) -> Iterator[tuple[str, float]]:
    """Yield normalised latency, live EconoServe / tuned stock, at the corners of the cost model's doubt."""
    for doubt, (stock, ours) in cases.doubted(tunings).items():
        yield doubt, float(found[ours][NORMALIZED]) / float(found[stock][NORMALIZED])


def sustained(found: Found, kind: Kind, loads: Sequence[float] = KV.loads) -> float:
    """Return the load up to which mean normalised latency stays at `SIMILAR` times stock's at half load."""
    limit = SIMILAR * float(found[KV.case(0.5, 0)][NORMALIZED])
    shares = [limit / float(found[kind(KV.case(load, 0))][NORMALIZED]) for load in loads]
    return metrics.goodput(loads, shares, 1.0).load


BY: dict[str, tuple[Kind, Kind]] = {
    "as published": (PUBLISHED, cases.published("Full", cases.CLAIRVOYANT)),
    "ours": (TOLD, cases.econoserve(cases.CLAIRVOYANT)),
}
"""Whose algorithms the paper's findings are held against, and the same with all lengths known."""


def reproduce_findings(found: Found, ours: Kind, oracle: Kind) -> dict[str, float]:
    """Return what this form reaches of the paper's findings; `_paper_low` and `_paper_high` are theirs."""
    stock, mine, known = (comparison.runs(KV, KV.point, kind) for kind in (comparison.stock, ours, oracle))
    full = comparison.runs(KV, KV.point, PUBLISHED)
    rate = sustained(found, ours)

    def points(more: Sequence[Case], less: Sequence[Case], figure: str) -> float:
        return 100 * (comparison.mean(found, more, figure) - comparison.mean(found, less, figure))

    got = {
        "rate_of_stock": rate / sustained(found, comparison.stock),
        "rate_of_orca": rate / sustained(found, cases.other("Orca"), cases.LOW_LOADS),
        "rate_of_sarathi": rate / sustained(found, cases.other("Sarathi")),
        "rate_of_distserve_on_two_gpus": rate / sustained(found, cases.other(DISTSERVE), cases.PAIR_LOADS),
        "e2e_2x_attainment_below_oracle_points": points(known, mine, "met_e2e_2x"),
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
