"""The page and the picture of the study of DoublingBudget."""

from collections.abc import Sequence
from pathlib import Path

from e2e.bench.doubling_budget import cases, figures
from e2e.bench.doubling_budget.figures import LATENCIES, PAIRS, Study
from e2e.bench.report import markdown, plots
from e2e.bench.report.markdown import Cell
from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.doubt import CORNERS, TOLD
from e2e.bench.runs.setting import Setting


def write(study: Study, folder: Path) -> Path:
    """Write the whole page; returns its path."""
    return markdown.page(
        "doubling_budget",
        "DoublingBudget on one engine",
        _introduction(),
        "## Against stock, engines with default settings",
        markdown.picture(*ratios(study, folder)),
        latencies(study, ""),
        "## Against stock, both tuned",
        latencies(study, "_tuned"),
        "## Against a feedback queue, both tuned",
        latencies(study, "_of_mlfq"),
        "MLFQ: a skip-join feedback queue of five levels as FastServe has it, on vLLM: KV is allocated block "
        "by block, who loses it computes it anew, and who waited for 30 s is promoted.",
        "## Engine settings, tuned",
        tuning.told(study.tunings, cases.SETTINGS),
        "## Its parts, and other policies",
        *(forms(study, setting) for setting in cases.TAKEN_APART),
        "Default engines, means over seeds. *As published*: preempts always, one phase a step; the paper's "
        "engine keeps the KV of whom it preempts. SRPT knows each output's true length; nobody can.",
        "## How sure this is",
        doubts(study),
        folder=folder,
    )


def _introduction() -> str:
    return (
        f"{comparison.told(cases.SETTINGS)} Ratios below 1: DoublingBudget is better. {comparison.TUNED} "
        "Tuned for the least mean E2E at the load where forms are compared. Brackets: 95 % interval over "
        "seeds. The paper (SeaLLM) measures this policy among services that share GPUs; one engine has one "
        "service, so none of its figures can be set beside these."
    )


def ratios(study: Study, folder: Path) -> tuple[Path, str]:
    """Draw latencies of DoublingBudget over stock's at each workload's point."""
    shown = ("mean TTFT", "p99 TTFT", "mean E2E", "p99 E2E", "longest wait")
    short_of_kv = {
        "reasoning service": cases.LONG_TAILS,
        "conversation": cases.CONVERSATION,
        "ShareGPT": cases.SHAREGPT,
    }
    groups = {
        service: {name: study.ratio(setting, setting.point, LATENCIES[name]) for name in shown}
        for service, setting in short_of_kv.items()
    }
    title = "DoublingBudget over stock where KV is short: sooner starts for most, later ends for the longest"
    caption = f"Simulated, load {cases.LONG_TAILS.point:g}, default engines; 95 % interval over seeds."
    path = plots.ratios(
        folder / "doubling_budget.svg", title, caption, groups, x_label="DoublingBudget / stock"
    )
    return path, f"{title}. {caption}"


def latencies(study: Study, end: str) -> str:
    """Tabulate the ratios of one of `PAIRS`."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SETTINGS:
        for load in setting.loads:
            cells = (study.ratio(setting, load, figure, end) for figure in LATENCIES.values())
            runs = [case for kind in PAIRS[end] for case in study.runs(setting, load, kind)]
            grows = "yes" if comparison.grows(study.found, runs) else "no"
            rows.append((f"{setting.name}: {load:g}", *cells, grows))
    return markdown.table((" / ".join(PAIRS[end]), *LATENCIES, "a queue only grows"), rows)


def forms(study: Study, setting: Setting) -> str:
    """Tabulate the policy's forms and other policies on a setting, in seconds."""
    rows: list[Sequence[Cell]] = []
    for name, kind in {"stock": comparison.stock, **cases.forms()}.items():
        runs = comparison.runs(setting, setting.point, kind)
        seconds = (comparison.mean(study.found, runs, figure) for figure in LATENCIES.values())
        preemptions = sum(int(study.found[case]["preemptions"]) for case in runs)
        rows.append((name, *seconds, f"{preemptions / len(runs) / setting.requests:.1%}"))
    header = (f"{setting.name}: {setting.point:g}", *(f"{name}, s" for name in LATENCIES))
    return markdown.table((*header, "preemptions / requests"), rows)


def doubts(study: Study) -> str:
    """Tabulate ratios over the corners of the grid."""
    rows = [
        (name, *(f"{each:.2f}" for each in figures.doubts(study.found, LATENCIES[name])))
        for name in ("mean TTFT", "mean E2E", "p99 E2E")
    ]
    setting = cases.DOUBTED
    note = f"DoublingBudget / stock on {setting.name}, load {setting.point:g}, one seed: {TOLD}."
    return f"{markdown.table(('finding', *map(str, CORNERS)), rows)}\n\n{note}"
