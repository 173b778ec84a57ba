"""How far the simulator was off, for what a service runs on: told to people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_engine.cost import known_error
from headrace_engine.cost.known_error import FIGURES, Comparison, Figure
from headrace_engine.cost.model import Profile
from headrace_operator.api.bodies import JsonObject


@dataclass(frozen=True, slots=True)
class KnownError:
    """What is known of the error for one model and GPU."""

    compared: tuple[Comparison, ...]  # empty: it was never compared with runs
    off_by: dict[Figure, float]  # factor either way; the widest of any model and GPU where nothing is known


def find_known_error(profile: Profile, comparisons: Sequence[Comparison] | None = None) -> KnownError:
    """Find what is known of the model and GPUs of `profile` in `comparisons`, by default those packaged."""
    everything = known_error.load_comparisons() if comparisons is None else comparisons
    same = known_error.find_comparisons(everything, profile.model, profile.gpu, profile.tensor_parallel)
    return KnownError(
        compared=tuple(same),
        off_by={
            figure: known_error.off_by(same, figure) if same else known_error.widest(everything, figure)
            for figure in FIGURES
        },
    )


def describe_known_error(known: KnownError) -> str:
    """Write the known error in one line for people."""
    if not known.compared:
        factors = ", ".join(f"{figure.upper()} x {known.off_by[figure]:.2f}" for figure in FIGURES)
        return (
            f"never compared with runs of this model and GPU; the widest error of others is taken: {factors}"
        )
    runs = sum(len(each.runs) for each in known.compared)
    engines = ", ".join(dict.fromkeys(each.engine for each in known.compared))
    sources = "; ".join(dict.fromkeys(each.source for each in known.compared))
    counted = f"{runs} {'run' if runs == 1 else 'runs'} of {engines}"
    return f"{summarise_error(known.compared)} in {counted} ({sources})"


def summarise_error(comparisons: Sequence[Comparison]) -> str:
    """Write how far means were off: `TTFT 7.1 % (worst -7.1 %), TPOT ...`, the median size and the worst."""
    parts = []
    for figure in FIGURES:
        middle = known_error.median_error(comparisons, figure)
        worst = known_error.worst_error(comparisons, figure)
        if middle is not None and worst is not None:
            parts.append(f"{figure.upper()} {middle:.1f} % (worst {worst:+.1f} %)")
    return ", ".join(parts)


def known_error_json(known: KnownError) -> JsonObject:
    """Return what is known as JSON: `off_by` are factors, the rest is signed percent of means."""
    return {
        "off_by": {figure: round(factor, 4) for figure, factor in known.off_by.items()},
        "compared": [
            {"engine": each.engine, "source": each.source, "runs": {k: dict(v) for k, v in each.runs.items()}}
            for each in known.compared
        ],
    }
