"""The page and the pictures of the study of SCLS."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from e2e.bench.report import markdown, plots
from e2e.bench.report.intervals import Estimate
from e2e.bench.report.markdown import Cell
from e2e.bench.report.plots import Curve
from e2e.bench.scls import cases, claims, figures, static_engines
from e2e.bench.scls.averages import Found, mean
from e2e.bench.scls.cases import MIDDLE, RATES
from e2e.bench.scls.claims import Claim
from e2e.bench.scls.figures import SYSTEMS


def write(found: Found, folder: Path) -> Path:
    """Write the whole page; returns its path."""
    told = claims.all_claims(found)
    every = [claim for section in told.values() for claim in section]
    return markdown.page(
        "scls",
        "SCLS as published",
        _introduction(),
        f"Of {len(every)} claims {sum(claim.holds for claim in every)} come out with the paper's sign.",
        markdown.picture(*by_rate(found, folder)),
        responses(found),
        *(part for name, section in told.items() for part in (f"## {name}", claimed(section))),
        "## Against engines that batch continuously",
        markdown.picture(*by_number_at_once(found, folder)),
        _continuous(found),
        folder=folder,
    )


def _introduction() -> str:
    constant, per_token = static_engines.hf_delays()
    return (
        f"The paper's setting: eight Llama-2-13B on A100 80 GB, slices of 128 tokens, {RATES[0]} to "
        f"{RATES[-1]} requests/s for ten minutes, {len(cases.SEEDS)} seeds. CodeFuse's trace was never "
        "published: lengths are ShareGPT's, the paper's other data, cut at 1,024 as there. *DS* "
        "(DeepSpeed-Inference) takes the catalogue's step times and the paper's own rule for what fits "
        f"(Algorithm 2); *HF* (Hugging Face Transformers) takes {constant * 1000:.1f} ms more for each "
        f"iteration and {per_token * 1e6:.1f} µs for each cached token, which makes the paper's own "
        "example come out (Figure 11: 13.5 s together, 7.6 s apart). *SLS*: static batches of 16 (HF) or "
        "12 (DS), each worker in turn. *ILS*: FastGen's defaults on vLLM's scheduler, each worker in "
        "turn. *vLLM*: its own defaults of today behind SAL. A sign holds if it holds at every rate, in "
        "the mean over seeds; ranges are over rates."
    )


def claimed(section: Sequence[Claim]) -> str:
    """Tabulate claims beside what comes out here."""
    rows: list[Sequence[Cell]] = [
        (
            claim.words,
            "the sign alone" if claim.paper is None else _range(*claim.paper),
            _range(min(claim.figures), max(claim.figures)),
            "yes" if claim.holds else "**no**",
            claim.why,
        )
        for claim in section
    ]
    return markdown.table(("claim", "paper", "simulated", "sign holds", "where it differs"), rows)


def _range(least: float, most: float) -> str:
    return " to ".join(dict.fromkeys(f"{end:.3g}" for end in (least, most)))


def responses(found: Found) -> str:
    """Tabulate throughput and response times of all systems."""
    rows: list[Sequence[Cell]] = []
    for name, make in SYSTEMS.items():
        for rate in (RATES[0], MIDDLE, RATES[-1]):
            shown = ("throughput", "response_mean", "response_p95", "response_longest")
            cells = [mean(found, figure, make, rate).value for figure in shown]
            first = "first_token_mean"
            continuous = first in found[make(rate, cases.SEEDS[0])]
            rows.append(
                (
                    f"{name}: {rate}",
                    *cells,
                    mean(found, first, make, rate).value if continuous else None,
                )
            )
    header = ("requests/s", "throughput, 1/s", "mean response, s", "95 %, s", "longest, s", "mean TTFT, s")
    return markdown.table(header, rows)


def by_rate(found: Found, folder: Path) -> tuple[Path, str]:
    """Draw throughput over the rate of arrivals."""
    panels = {
        "Hugging Face Transformers": ("SLS on HF", "SCLS on HF"),
        "DeepSpeed-Inference": ("SLS on DS", "SCLS on DS", "ILS"),
    }
    lines = {
        heading: {
            name: _curve(RATES, [mean(found, "throughput", SYSTEMS[name], rate) for rate in RATES])
            for name in names
        }
        for heading, names in panels.items()
    }
    title = "Slices serve several times what whole sequences do, and less than continuous batching"
    caption = "Simulated, eight Llama-2-13B on A100, ShareGPT's lengths; 95 % interval over seeds."
    path = plots.curves(
        folder / "scls.svg",
        title,
        caption,
        lines,
        x_label="arrivals, requests/s",
        y_label="throughput, requests/s",
    )
    return path, f"{title}. {caption}"


def _curve(x: Sequence[float], y: Sequence[Estimate]) -> Curve:
    return Curve(x, [each.value for each in y], [each.low for each in y], [each.high for each in y])


def by_number_at_once(found: Found, folder: Path) -> tuple[Path, str]:
    """Draw ILS's throughput over how many requests an engine runs at once, with SCLS's as the level."""
    values = [mean(found, "throughput", figures.held_to(each)) for each in cases.AT_ONCE]
    scls = mean(found, "throughput", SYSTEMS["SCLS on DS"]).value
    title = "Continuous batching falls behind slices only where few requests may run at once"
    caption = f"Simulated, {MIDDLE} requests/s, eight Llama-2-13B on A100; 95 % interval over seeds."
    path = plots.curves(
        folder / "scls_at_once.svg",
        title,
        caption,
        {"DeepSpeed": {"ILS": _curve(cases.AT_ONCE, values)}},
        x_label="requests that an engine runs at once",
        y_label="throughput, requests/s",
        level=(scls, "SCLS on DS"),
    )
    return path, f"{title}. {caption}"


def _continuous(found: Found) -> str:
    enough = figures.enough_at_once(found)
    return (
        f"At {MIDDLE} requests/s ILS serves more than SCLS on DS as soon as an engine may run {enough} "
        f"at once; the KV cache has room for about {_room():,.0f} of these requests. To be as far behind "
        f"as the paper's FastGen, SCLS / ILS 1.62 to 2.71, it has to run 4 to 8 ({_behind(found)}). What "
        "slices gain they gain over static batches: who has ended leaves, and others take its place, which "
        "continuous batching does at every token."
    )


def _behind(found: Found) -> str:
    scls = mean(found, "throughput", SYSTEMS["SCLS on DS"]).value
    four, eight = (mean(found, "throughput", figures.held_to(each)).value for each in (4, 8))
    return f"{scls / four:.2f} and {scls / eight:.2f}"


def _room() -> float:
    held = statistics.fmean(each.prompt_tokens + each.output_tokens / 2 for each in cases.lengths())
    return static_engines.KV_TOKENS / held
