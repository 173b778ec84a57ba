"""`headrace simulate --pool FILE`: its options, and from them to its report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from headrace_engine.cost import catalog
from headrace_operator.placement.problem import Nodes, divide_gpus
from headrace_operator.placement.score import FitsNowhereError
from headrace_operator.simulate import document
from headrace_operator.simulate.figures import Figures
from headrace_operator.simulate.needed_vllm import require_vllm
from headrace_operator.simulate.pool import pool_study
from headrace_operator.simulate.pool.pool_jobs import PlanJob
from headrace_operator.simulate.pool.pool_report import PoolReport, as_json
from headrace_operator.simulate.pool.pool_service import read_service
from headrace_operator.simulate.pool.pool_table import print_report
from headrace_operator.simulate.pool.pool_traces import load_traces
from headrace_operator.simulate.processes import open_processes
from headrace_operator.simulate.simulated_engine import RESERVED, UTILIZATION
from headrace_operator.simulate.table import open_console
from headrace_operator.simulate.usage_error import UsageError


def run(options: argparse.Namespace) -> None:
    """Simulate and print the report; raises UsageError."""
    report = simulate(options)
    if options.output == "json":
        print(json.dumps(as_json(report), indent=2))
    else:
        print_report(report, open_console())


def simulate(options: argparse.Namespace) -> PoolReport:
    """Read what was named, look for plans, simulate them; raises UsageError."""
    found = document.load_services(options.pool)
    names = [service.key.name for service in found]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UsageError(
            f"{options.pool}: two LLMServices are called {', '.join(sorted(repeated))}; rename one"
        )
    files = _by_name("--trace", "FILE", options.trace, names)
    told = _by_name("--model", "MODEL", options.model, names)
    missing = [name for name in names if name not in files]
    if missing:
        raise UsageError(f"--trace: none for {', '.join(missing)}; add --trace {missing[0]}=FILE")
    services = [read_service(each, told.get(each.key.name), options.gpu) for each in found]
    pools = document.load_pools(options.pool)
    try:
        today = pool_study.list_todays(services, pools)
    except UsageError as error:
        raise UsageError(f"{options.pool}: {error}") from error
    nodes = _nodes(options, sum(group.gpus for group in today))
    stretch = load_traces(
        {name: Path(file) for name, file in files.items()},
        services,
        options.window,
        skip=options.skip_bad_rows,
    )
    require_vllm()
    with open_processes() as processes:
        try:
            study = pool_study.run_study(
                lambda jobs, what: processes.run(_run_plan, jobs, what),
                services,
                today,
                stretch,
                nodes,
                seed=options.seed,
            )
        except FitsNowhereError as error:
            raise UsageError(f"--gpus-per-node: {error}") from error
    return PoolReport(services, options.gpu, nodes, stretch, study)


def _nodes(options: argparse.Namespace, today: int) -> Nodes:
    """Return the nodes that were asked for, or those that today's engines need."""
    per_node = options.gpus_per_node
    gpus = (per_node,) * options.nodes if options.nodes else divide_gpus(today, per_node)
    return Nodes(gpus, int(catalog.gpu_bytes(options.gpu) * UTILIZATION), RESERVED)


def _by_name(option: str, what: str, given: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Read `NAME=VALUE` of each service; UsageError for another name or one given twice."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and value):
            raise UsageError(f"{option}: {text!r} is not NAME={what}; with --pool each names its LLMService")
        if name not in names:
            raise UsageError(f"{option}: the file has no LLMService {name!r}; it has {', '.join(names)}")
        if name in found:
            raise UsageError(f"{option}: given twice for {name}")
        found[name] = value
    return found


def _run_plan(job: PlanJob) -> list[Figures | None]:
    """Simulate a plan; returns the figures of each service, None for one that was asked nothing."""
    from headrace_operator.simulate.pool import pool_worker  # noqa: PLC0415 vLLM must not be imported where tables are drawn

    return pool_worker.serve_plan(job)
