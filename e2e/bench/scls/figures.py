"""What `scls.json` holds, and how the page and the figures count."""

from e2e.bench.scls import cases, claims
from e2e.bench.scls.averages import Found, Make, like, mean
from e2e.bench.scls.cases import RATES, ContinuousCase, StaticCase


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
        made[f"throughput_ils_of_{at_once}"] = mean(found, "throughput", held_to(at_once)).value
    return {key: float(f"{value:.4g}") for key, value in made.items()}


def held_to(at_once: int) -> Make:
    """Make ILS of which an engine runs so many requests at once."""
    return like(ContinuousCase("FastGen", at_once=at_once))


def enough_at_once(found: Found) -> int:
    """Return how many ILS has to run at once, of the numbers tried, to serve more than SCLS on DS does."""
    scls = mean(found, "throughput", SYSTEMS["SCLS on DS"]).value
    tried = (*cases.AT_ONCE, cases.FASTGEN.max_num_seqs)
    return next(each for each in tried if mean(found, "throughput", held_to(each)).value > scls)


SYSTEMS: dict[str, Make] = {
    "SLS on HF": like(StaticCase("HF", "SLS")),
    "SCLS on HF": like(StaticCase("HF", "SCLS")),
    "SLS on DS": like(StaticCase("DS", "SLS")),
    "SCLS on DS": like(StaticCase("DS", "SCLS")),
    "ILS": like(ContinuousCase("FastGen")),
    "vLLM": like(ContinuousCase("vLLM")),
}
