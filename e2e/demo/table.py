"""The replay as a live table in a terminal, as plain lines elsewhere; and the table that ends it."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from e2e.demo.metrics import Sample, Spread, Summary, Targets, summarise
from e2e.demo.replay import Progress
from e2e.demo.steps import Steps

LINE_EVERY = 5.0  # seconds between plain lines
DRAW_EVERY = 0.5  # seconds between drawings of the table
RECENT = 50  # requests that the live numbers look back on
NO_COMPARISON = (
    "Not a fair comparison: each policy also serves what the one before left waiting. `make bench` compares."
)


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
        f"{service}: {progress.in_flight[service]} in flight, TTFT p50 {_seconds(now.ttft.p50)},"
        f" SLO {_percent(now.attainment)}"
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
            *(_seconds(spread.p50) for spread in (now.ttft, now.tpot, now.e2e)),
            _percent(now.attainment),
        )
    return table


def comparison(rows: Sequence[tuple[str, str, Summary]]) -> Table:
    """Make the comparison: a row per service and policy."""
    table = Table(title="The same requests under each policy in turn (p50 / p95)", caption=NO_COMPARISON)
    for heading in ("service", "policy", "requests", "errors", "TTFT", "TPOT", "E2E", "SLO met"):
        table.add_column(heading, justify="left" if heading in {"service", "policy"} else "right")
    for service, policy, summary in rows:
        table.add_row(
            service,
            policy,
            str(summary.requests),
            str(summary.errors),
            *(_spread(spread) for spread in (summary.ttft, summary.tpot, summary.e2e)),
            _percent(summary.attainment),
        )
    return table


def _recent(progress: Progress, service: str) -> list[Sample]:
    return [sample for sample in progress.samples if sample.service == service][-RECENT:]


def _spread(spread: Spread) -> str:
    return f"{_seconds(spread.p50)} / {_seconds(spread.p95)}"


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.0%}"
