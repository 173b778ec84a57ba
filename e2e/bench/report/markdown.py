"""Result pages: Markdown with tables and pictures, beside the JSON in `e2e/bench/results`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.bench.report.intervals import Estimate
from e2e.bench.report.results import RESULTS

Cell = str | float | int | Estimate | None


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Make a Markdown table, columns but the first right-aligned; ValueError for a row of another length."""
    if any(len(row) != len(header) for row in rows):
        raise ValueError(f"each row needs {len(header)} cells")
    cells = [list(header), *[[text(cell) for cell in row] for row in rows]]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(header))]
    lines = [
        "| "
        + " | ".join(_padded(cell, width, place) for place, (cell, width) in _columns(row, widths))
        + " |"
        for row in cells
    ]
    rule = "|" + "|".join(
        ":" + "-" * (widths[0] + 1) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)
    )
    return "\n".join([lines[0], rule + "|", *lines[1:]])


def text(cell: Cell) -> str:
    """Write a cell as it is printed: three significant digits, `-` for nothing."""
    if cell is None:
        return "-"
    if isinstance(cell, str | Estimate):
        return str(cell)
    if isinstance(cell, int) or abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.3g}"


def compare_findings(
    told: Mapping[str, tuple[str, str]],
    paper: Mapping[str, tuple[float, float]],
    got: Mapping[str, Mapping[str, float]],
) -> str:
    """Tabulate a paper's findings beside what comes out here: `told` has each in words, and why it differs.

    `paper` has their lowest and highest figures; `got` has, by whose algorithms, NAME, or NAME_least and
    NAME_most.
    """
    rows = []
    for name, (finding, why) in told.items():
        cells = (_range(_ends(name, found), ".2f") for found in got.values())
        rows.append((finding, _range(paper[name], "g"), *cells, why))
    return table(("finding", "paper", *(f"simulated, {each}" for each in got), "why it differs"), rows)


def _ends(name: str, found: Mapping[str, float]) -> list[float]:
    return [found[name]] if name in found else [found[f"{name}_least"], found[f"{name}_most"]]


def _range(ends: Sequence[float], form: str) -> str:
    return " to ".join(dict.fromkeys(f"{end:{form}}" for end in ends))


def picture(path: Path, caption: str) -> str:
    """Write Markdown that shows a picture beside the page."""
    return f"![{caption}]({path.name})\n\n*{caption}*"


def page(name: str, title: str, *parts: str, simulated: bool = True, folder: Path = RESULTS) -> Path:
    """Write `folder/name.md`; a simulated one begins by saying so, with the simulator's known error."""
    note = [f"Simulated: no GPU ran. {known_error()}"] if simulated else []
    path = folder / f"{name}.md"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([f"# {title}", *note, *(part.strip() for part in parts)]) + "\n")
    return path


def known_error(folder: Path = RESULTS) -> str:
    """Say how far the simulator was from measured runs, by `validation.json` and `gpu_runs.json`."""
    try:
        blind, chosen = (
            json.loads((folder / f"{name}.json").read_text())["figures"]
            for name in ("validation", "gpu_runs")
        )
        ttft, tpot, e2e = (blind[f"pro6000_8b_{key}_error_percent"] for key in ("ttft", "tpot", "e2e"))
        one, several = (chosen[f"{name}_error_median_percent"] for name in ("e2e", "several_gpus_tpot"))
    except (OSError, ValueError, KeyError):
        return "`python -m e2e.bench.validation` measures the simulator's error, which is not known here."
    return (
        "Against a measured vLLM run (8B model, RTX PRO 6000) the simulator's mean TTFT is off by "
        f"{ttft:+.1f} %, TPOT by {tpot:+.1f} %, end to end by {e2e:+.1f} %. On H100, where its host time is "
        f"calibrated, it misses the mean end-to-end time of an 8B model by {one:.1f} % (median of 14 runs), "
        f"the TPOT of a 32B model on two to eight by {several:.1f} % (of 90). It was never held against a "
        "run on A100."
    )


def _columns(row: Sequence[str], widths: Sequence[int]) -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(zip(row, widths, strict=True)))


def _padded(cell: str, width: int, place: int) -> str:
    return cell.ljust(width) if place == 0 else cell.rjust(width)
