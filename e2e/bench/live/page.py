"""The page of the study of policies on real engines."""

import statistics
from collections.abc import Mapping
from pathlib import Path

from e2e.bench.live import journal
from e2e.bench.live.cases import CONTESTANTS, POLICIES, TUNED, WARM_UP, named
from e2e.bench.live.figures import JUDGED, Found, mean_error
from e2e.bench.report import markdown, plots
from e2e.bench.report.intervals import Estimate
from e2e.bench.report.markdown import Cell

SHOWN = (
    ("mean TTFT", "ttft_mean"),
    ("mean TPOT", "tpot_mean"),
    ("mean E2E", "e2e_mean"),
    ("longest wait", "ttft_max"),
    ("goodput", "goodput"),
)


def write(name: str, found: Found, figures: Mapping[str, float], folder: Path) -> Path:
    """Write the whole page; returns its path."""
    parts = [_introduction(found)]
    if any(found.complete(workload, load) for workload, load in found.cells()):
        parts.append(markdown.picture(picture(name, found, folder), "Mean TTFT over tuned stock's."))
    for workload, load in found.cells():
        if found.complete(workload, load):
            parts += [f"## {_title(found, workload)}, load {load:g}", against_tuned(found, workload, load)]
            parts += [absolute(found, workload, load)]
    parts += ["## How far predictions were off", _errors(figures)]
    return markdown.page(name, "Policies on real engines", *parts, simulated=False, folder=folder)


def picture(name: str, found: Found, folder: Path) -> Path:
    """Draw mean TTFT over tuned stock's, measured and predicted."""
    groups: dict[str, dict[str, Estimate]] = {}
    for workload, load in found.cells():
        if found.complete(workload, load):
            rows = groups.setdefault(f"{workload}, load {load:g}", {})
            for contestant, policy in POLICIES.items():
                measured, predicted = (
                    found.ratio(kind, contestant, workload, load, "ttft_mean")
                    for kind in (found.measured, found.predicted)
                )
                rows[policy] = measured
                rows[f"{policy}, predicted"] = predicted
    title = "Mean TTFT of policies over tuned stock's, on a real engine"
    return plots.ratios(
        folder / f"{name}.svg", title, "Measured, and predicted before each run.", groups, x_label="ratio"
    )


def against_tuned(found: Found, workload: str, load: float) -> str:
    """Tabulate contestant / tuned stock, measured, with what was predicted."""
    rows: list[list[Cell]] = []
    for contestant in CONTESTANTS:
        if contestant == TUNED:
            continue
        cells: list[Cell] = [contestant]
        for _, figure in SHOWN:
            measured = found.ratio(found.measured, contestant, workload, load, figure)
            predicted = found.ratio(found.predicted, contestant, workload, load, figure)
            cells.append(f"{measured}; {predicted.value:.2f}")
        rows.append(cells)
    return markdown.table(["/ tuned stock: measured; predicted", *(name for name, _ in SHOWN)], rows)


def absolute(found: Found, workload: str, load: float) -> str:
    """Tabulate means over repetitions, and by how much the predicted ones are off."""
    rows: list[list[Cell]] = []
    for contestant in CONTESTANTS:
        cells: list[Cell] = [contestant]
        for _, figure in SHOWN[:-1]:
            seconds = statistics.fmean(found.values(found.measured, contestant, workload, load, figure))
            off = mean_error(found, contestant, workload, load, figure)
            cells.append(f"{seconds:.3g} s ({off:+.0f} %)" if figure in JUDGED else f"{seconds:.3g} s")
        met = statistics.fmean(found.values(found.measured, contestant, workload, load, "met"))
        rows.append([*cells, f"{100 * met:.0f} %"])
    header = ["measured (prediction's error)", *(name for name, _ in SHOWN[:-1]), "in target"]
    return markdown.table(header, rows)


def _title(found: Found, workload: str) -> str:
    each = named(found.device.workloads, workload)
    lengths = f"prompts / {each.scale.prompt_divisor:g}, outputs / {each.scale.output_divisor:g}"
    return (
        f"{workload} ({lengths}, {each.seconds:g} s of arrivals, {each.blocks} KV blocks, "
        f"target {each.e2e_scale:g} x alone)"
    )


def _introduction(found: Found) -> str:
    device = found.device
    return (
        f"Measured: real vLLM on {journal.hardware(device)}; random weights. The first "
        f"{100 * WARM_UP:g} % of a run do not count. Each of {device.repetitions} repetitions has the same "
        "requests at other times, alike for all contestants, who take turns in random order. Load is a share "
        "of the most that tuned stock answers in a closed loop. Tuned stock, LARRY and EconoServe have, "
        "of the step budgets within 3 % of the lowest mean E2E in simulations of this engine, the one with "
        "the lowest mean TTFT; AccelGen derives its own. Where KV binds, stock's watermark is tuned with its "
        "budget; policies have none. Brackets are 95 % intervals of ratios paired by repetition. "
        "Goodput: requests a second that end within the target, a "
        "multiple of what they take alone. What is predicted was written down before the run, for steps as "
        "slow as they were in the policies' last runs."
    )


def _errors(figures: Mapping[str, float]) -> str:
    names = [name for name in figures if name.startswith(("prediction_", "disturbed_"))]
    return markdown.table(["figure", "%"], [[name, figures[name]] for name in names])
