"""The replay as a live table in a terminal, as plain lines elsewhere; and the table that ends it."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table

from e2e.demo.metrics import Sample, Summary, Targets, summarise
from e2e.demo.replay import Progress
from e2e.demo.steps import Steps

LINE_EVERY = 5.0  # seconds between plain lines
DRAW_EVERY = 0.5  # seconds between drawings of the table
RECENT = 50  # requests that the live numbers look back on
NOTHING = summarise((), Targets())
WIDTH = 110  # columns of a table where there is no terminal to ask
CAPTION = "One run on one machine, predicted and measured once. `make bench` repeats."


@dataclass(frozen=True, slots=True)
class Row:
    """A service under a policy; ratios are of its mean TTFT to that of the first policy, NaN if unknown."""

    service: str
    policy: str
    measured: Summary
    measured_ratio: float
    sooner: bool  # by more than chance, as measured
    predicted: Summary | None
    predicted_ratio: float


async def follow(
    progress: Progress, targets: Mapping[str, Targets], phase: Callable[[], str], steps: Steps
) -> None:
    """Show the replay's progress until cancelled."""
    console = Console()
    if not console.is_terminal:
        while True:
            await asyncio.sleep(LINE_EVERY)
            steps.say(line(progress, targets, phase()))
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(live_table(progress, targets, phase()), refresh=True)
            steps.alive()
            await asyncio.sleep(DRAW_EVERY)


def line(progress: Progress, targets: Mapping[str, Targets], phase: str) -> str:
    """Sum all services up in one line."""
    parts = [
        f"{service}: {progress.in_flight[service]} in flight, TTFT p50 {seconds(now.ttft.p50)},"
        f" SLO {percent(now.attainment)}"
        for service in targets
        for now in [summarise(_recent(progress, service), targets[service])]
    ]
    return f"  {phase}: {len(progress.samples)}/{progress.total} answered; " + "; ".join(parts)


def live_table(progress: Progress, targets: Mapping[str, Targets], phase: str) -> Table:
    """Make the live table: a row per service over its most recent requests."""
    table = Table(title=f"{phase}: {len(progress.samples)} of {progress.total} answered")
    for heading in (
        "service",
        "in flight",
        "answered",
        "errors",
        "TTFT p50",
        "TPOT p50",
        "E2E p50",
        "SLO met",
    ):
        table.add_column(heading, justify="left" if heading == "service" else "right")
    for service, wanted in targets.items():
        every = [sample for sample in progress.samples if sample.service == service]
        now = summarise(every[-RECENT:], wanted)
        table.add_row(
            service,
            str(progress.in_flight[service]),
            str(len(every)),
            str(sum(bool(sample.error) for sample in every)),
            *(seconds(spread.p50) for spread in (now.ttft, now.tpot, now.e2e)),
            percent(now.attainment),
        )
    return table


def comparison(rows: Sequence[Row]) -> Table:
    """Make the comparison: a row per service and policy, what was predicted beside what was measured."""
    table = Table(title="The same requests under each policy, predicted → measured", caption=CAPTION)
    for heading in ("service", "policy", "sent", "errors"):
        table.add_column(heading, justify="left" if heading in {"service", "policy"} else "right")
    for heading in ("TTFT mean", "of FCFS's", "TTFT p95", "SLO met"):
        table.add_column(heading, justify="right")
    for row in rows:
        now, then = row.measured, row.predicted or NOTHING
        table.add_row(
            row.service,
            row.policy,
            str(now.requests),
            str(now.errors),
            _both(seconds, then.ttft.mean, now.ttft.mean),
            _both(_times, row.predicted_ratio, row.measured_ratio),
            _both(seconds, then.ttft.p95, now.ttft.p95),
            _both(percent, then.attainment, now.attainment),
        )
    return table


def verdict(traffic: str, rows: Sequence[Row]) -> str:
    """Say which policy answered soonest, as measured; `rows` are of one service, the first policy's first."""
    others = [row for row in rows[1:] if row.sooner]
    best = min(others, key=lambda row: row.measured_ratio, default=None)
    where = f"{rows[0].service} ({traffic})"
    if best is None:
        return f"{where}: no policy answered clearly sooner than {rows[0].policy} in this run; stay with it."
    told = "" if math.isnan(best.predicted_ratio) else f", predicted x {best.predicted_ratio:.2f}"
    gain = f"mean TTFT x {best.measured_ratio:.2f} of {rows[0].policy}'s{told}"
    return f"{where}: {best.policy} answered soonest, {gain}."


def ratio(new: Summary, first: Summary) -> float:
    """Return a mean TTFT over the first policy's; NaN where either is unknown."""
    return new.ttft.mean / first.ttft.mean if first.ttft.mean else math.nan


def seconds(value: float) -> str:
    """Write a time in ms or s."""
    if math.isnan(value):
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def percent(share: float) -> str:
    """Write a share in percent."""
    return "-" if math.isnan(share) else f"{share:.0%}"


def _times(value: float) -> str:
    return "-" if math.isnan(value) else f"x {value:.2f}"


def _both(show: Callable[[float], str], predicted: float, measured: float) -> str:
    return f"{show(predicted)} → {show(measured)}"


def _recent(progress: Progress, service: str) -> list[Sample]:
    return [sample for sample in progress.samples if sample.service == service][-RECENT:]
