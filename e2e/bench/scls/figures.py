"""What `scls.json` holds, and how the page and the figures count."""

from dataclasses import replace

from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate
from e2e.bench.scls import cases, claims
from e2e.bench.scls.cases import MIDDLE, RATES, Case, ContinuousCase, StaticCase
from e2e.bench.scls.claims import Found, Make


def figures(found: Found) -> dict[str, float]:
    """Return the figures: how many signs come out as claimed, each claim, and ILS by how many run at once."""
    told = [claim for section in claims.all_claims(found).values() for claim in section]
    made: dict[str, float] = {
        "paper_signs": len(told),
        "paper_signs_reproduced": sum(claim.holds for claim in told),
    }
    for claim in told:
        if len(claim.figures) == 1:
            made[claim.key] = claim.figures[0]
        else:
            made |= {f"{claim.key}_least": min(claim.figures), f"{claim.key}_most": max(claim.figures)}
    for name, make in SYSTEMS.items():
        for rate in RATES:
            for figure in ("throughput", "response_mean"):
                made[f"{figure}_{name.lower().replace(' ', '_')}_{rate}"] = mean(
                    found, figure, make, rate
                ).value
    for at_once in cases.AT_ONCE:
        made[f"throughput_ils_of_{at_once}"] = mean(found, "throughput", held_to(at_once), MIDDLE).value
    return {key: float(f"{value:.4g}") for key, value in made.items()}


def mean(found: Found, figure: str, make: Make, rate: int) -> Estimate:
    """Estimate a figure's mean over seeds."""
    return intervals.mean([float(found[make(rate, seed)][figure]) for seed in cases.SEEDS])


def held_to(at_once: int) -> Make:
    """Make ILS of which an engine runs so many requests at once."""
    return lambda rate, seed: ContinuousCase("FastGen", rate, seed, at_once)


def enough_at_once(found: Found) -> int:
    """Return how many ILS has to run at once, of the numbers tried, to serve more than SCLS on DS does."""
    scls = mean(found, "throughput", SYSTEMS["SCLS on DS"], MIDDLE).value
    tried = (*cases.AT_ONCE, cases.FASTGEN.max_num_seqs)
    return next(each for each in tried if mean(found, "throughput", held_to(each), MIDDLE).value > scls)


def _system(case: Case) -> Make:
    return lambda rate, seed: replace(case, rate=rate, seed=seed)


SYSTEMS: dict[str, Make] = {
    "SLS on HF": _system(StaticCase("HF", "SLS")),
    "SCLS on HF": _system(StaticCase("HF", "SCLS")),
    "SLS on DS": _system(StaticCase("DS", "SLS")),
    "SCLS on DS": _system(StaticCase("DS", "SCLS")),
    "ILS": _system(ContinuousCase("FastGen")),
    "vLLM": _system(ContinuousCase("vLLM")),
}
