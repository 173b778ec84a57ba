"""The command line: `headrace simulate`, and `headrace predict` beside it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headrace_operator.api.base import milliseconds
from headrace_operator.desired.llm_route import gateway_config
from headrace_operator.predict import prediction_file
from headrace_operator.simulate import candidates, document, models, targets, trace
from headrace_operator.simulate.jobs import World
from headrace_operator.simulate.known_error import find_known_error
from headrace_operator.simulate.listing import ListCostModels
from headrace_operator.simulate.needed_vllm import require_vllm
from headrace_operator.simulate.pool import pool_command
from headrace_operator.simulate.processes import open_processes
from headrace_operator.simulate.report import Report, as_json
from headrace_operator.simulate.simulated_engine import make_engine
from headrace_operator.simulate.simulations import Simulations
from headrace_operator.simulate.study import run_study
from headrace_operator.simulate.table import open_console, print_report
from headrace_operator.simulate.usage_error import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 after a result, 2 after one line that says what to correct."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except UsageError as error:
        print(f"headrace {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def run(options: argparse.Namespace) -> None:
    """Simulate and print the report; raises UsageError."""
    if options.pool:
        pool_command.run(options)
        return
    report = simulate(options)
    if options.output == "json":
        print(json.dumps(as_json(report), indent=2))
    else:
        print_report(report, open_console())


def simulate(options: argparse.Namespace) -> Report:
    """Read what was named, simulate, conclude; raises UsageError."""
    service = document.load_service(options.service)
    if len(options.trace) > 1 or len(options.model) > 1:
        raise UsageError(
            "--trace, --model: one is enough with --service; --pool takes one for each LLMService"
        )
    [path] = map(Path, options.trace)
    served = models.find_served_model(service, options.model[0] if options.model else None)
    cost = models.find_cost_model(served.name, options.gpu, service.spec.engine.tensor_parallel_size)
    profile = cost.profile
    derived = make_engine(service, served, profile)
    stretch = trace.load_stretch(path, derived.settings, options.window, skip=options.skip_bad_rows)
    slo, assumed = targets.choose_targets(service)
    require_vllm()
    world = World(
        arrivals=stretch.arrivals,
        seconds=stretch.seconds,
        settings=derived.settings,
        cost=cost,
        gateway=replace(
            gateway_config(service, (service.served_name,)), prefix_caching=derived.settings.prefix_caching
        ),
        slo=slo,
        seed=options.seed,
    )
    known = find_known_error(profile)
    replicas = max(service.replicas, 1)
    most = max(options.replicas_up_to, replicas)
    with open_processes() as processes:
        compared = candidates.list_candidates(service, derived.settings.max_num_batched_tokens)
        result = run_study(
            Simulations(processes, world),
            compared,
            replicas,
            most,
            off_by=known.off_by,
            seed=options.seed,
        )
    return Report(
        service=service,
        profile=profile,
        engine=derived,
        trace=str(path),
        stretch=stretch,
        slo=slo,
        slo_assumed=assumed,
        replicas=replicas,
        most=most,
        known_error=known,
        study=result,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("headrace")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    described = commands.add_parser(
        "predict",
        help="what loads would come to that are only described, one in each row of a file",
        description=prediction_file.__doc__,
    )
    described.set_defaults(run=prediction_file.run)
    prediction_file.add_arguments(described)
    command = commands.add_parser(
        "simulate",
        help="what other scheduling policies, or shared GPUs, would do to services' own traffic",
        description="Simulate an LLMService on a trace with vLLM's own scheduler and Headrace's own balancer,"
        " under its policy and others; or several LLMServices, on GPUs of their own and shared. No GPU and "
        "no cluster is needed.",
    )
    command.set_defaults(run=run)
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--service", type=Path, metavar="FILE", help="YAML file with the LLMService")
    what.add_argument(
        "--pool",
        type=Path,
        metavar="FILE",
        help="YAML file with several LLMServices, to learn what they would gain by sharing GPUs, and the "
        "GPUPool if there is one",
    )
    command.add_argument(
        "--trace",
        action="append",
        required=True,
        metavar="[NAME=]FILE",
        help="CSV or JSON lines: arrival_time (seconds or ISO dates), prompt_tokens, output_tokens; the "
        "finished-request log, Azure's and Mooncake's columns are known too. One for each service of --pool",
    )
    command.add_argument(
        "--list-cost-models",
        action=ListCostModels,
        help="print the models and GPUs that can be simulated, with how far each was off, and exit",
    )
    command.add_argument("--gpu", required=True, help=", ".join(models.list_known("gpu")))
    command.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="[NAME=]MODEL",
        help=f"{', '.join(models.list_known('model'))}; default: known from spec.model.source",
    )
    command.add_argument(
        "--window",
        type=_seconds,
        default="10m",
        metavar="10m",
        help="simulate the busiest stretch of this length (default: 10m)",
    )
    command.add_argument(
        "--replicas-up-to",
        type=_count,
        default=8,
        metavar="N",
        help="how many replicas to try at most (default: 8); not with --pool, where plans say it",
    )
    command.add_argument(
        "--nodes",
        type=_count,
        metavar="N",
        help="with --pool: nodes to place the services on (default: as many as today's engines need)",
    )
    command.add_argument(
        "--gpus-per-node", type=_count, default=8, metavar="N", help="with --pool: GPUs of each (default: 8)"
    )
    command.add_argument("--skip-bad-rows", action="store_true", help="leave out rows that can't be used")
    command.add_argument("--seed", type=int, default=0, help="of the balancer's chance (default: 0)")
    command.add_argument("--output", choices=["table", "json"], default="table")
    return parser


def _seconds(text: str) -> float:
    try:
        return milliseconds(text) / 1000
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return int(text)
