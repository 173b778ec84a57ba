"""What sharing would do, in sentences for people and as one JSON object for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace_operator.api.bodies import JsonObject
from headrace_operator.placement.problem import ATTAINMENT, Nodes
from headrace_operator.simulate import known_error, targets
from headrace_operator.simulate.known_error import find_known_error
from headrace_operator.simulate.pool.pool_service import PoolService
from headrace_operator.simulate.pool.pool_study import Engine, Placed, PoolStudy, SimulatedPlan
from headrace_operator.simulate.pool.pool_traces import PoolStretch
from headrace_operator.simulate.report import format_clock, round_figures
from headrace_operator.simulate.trace import doubt_clock


@dataclass(frozen=True, slots=True)
class PoolReport:
    """What was asked and what came out."""

    services: Sequence[PoolService]
    gpu: str
    nodes: Nodes
    stretch: PoolStretch
    study: PoolStudy

    def plans(self) -> Iterator[tuple[str, str, SimulatedPlan]]:
        """Yield what was found, each with a key for programs and words for people; what is today's once."""
        study = self.study
        told: list[SimulatedPlan] = []
        for key, words, plan in (
            ("today", "As it is today", study.today),
            ("own_gpus", "The best plan with GPUs of their own", study.alone),
            ("shared", "The best plan that may share", study.shared),
            ("fewest_own_gpus", "As well as today on the fewest GPUs of their own", study.fewest_alone),
            ("fewest_shared", "As well as today on the fewest GPUs, shared", study.fewest_shared),
        ):
            if plan is not None and plan not in told:
                told.append(plan)
                yield key, words, plan


def as_json(report: PoolReport) -> JsonObject:
    """Return everything as JSON, in seconds and shares."""
    study, stretch = report.study, report.stretch
    return {
        "simulated": True,
        "gpu": report.gpu,
        "nodes": list(report.nodes.gpus),
        "trace": {
            "requests": stretch.requests,
            "start": round(stretch.start, 3),
            "seconds": round(stretch.seconds, 3),
            "of_requests": stretch.trace_requests,
            "of_seconds": round(stretch.trace_seconds, 3),
            "skipped": list(stretch.skipped),
        },
        "services": [
            {
                "name": service.name,
                "model": service.model,
                "requests": len(arrivals),
                "targets": {**targets.format_limits(service.slo), "assumed": service.slo_assumed},
            }
            for service, arrivals in zip(report.services, stretch.arrivals, strict=True)
        ],
        "plans": {key: _plan_json(report, plan) for key, _, plan in report.plans()},
        "gpus": {
            "today": study.today.gpus,
            "own_gpus": _count(study.fewest_alone, study.today),
            "shared": _count(study.fewest_shared, study.today),
        },
        "notes": notes(report),
    }


def conclusion(report: PoolReport) -> list[str]:
    """Say what is gained, and how to set what is shared."""
    study, today = report.study, report.study.today
    own, shared = study.fewest_alone, study.fewest_shared
    lines = [
        (
            "GPUs on which every service does as well as today (as many of its requests meet their targets, "
            f"or {ATTAINMENT:.0%}): {_count(shared, today)} shared, {_count(own, today)} without sharing; "
            f"today {today.gpus}."
        )
    ]
    if study.shared is None:
        return [f"No plan has room for every service on {report.nodes.total_gpus} GPUs."]
    best = shared or study.shared
    if not best.shares:
        return [*lines, "Sharing gains nothing on this traffic."]
    [words] = (words for _, words, plan in report.plans() if plan == best)
    lines.append(f"{words}:")
    for group in best.groups:
        if len(group.engines) > 1:
            names = [report.services[engine.service].name for engine in group.engines]
            lines.append(f"  {' and '.join(names)} by turns on {group.gpus} x {report.gpu.upper()}")
            lines += [f"    {_setting(report, group, engine)}" for engine in group.engines]
    unlike = [service.name for number, service in enumerate(report.services) if _unlike(best, number)]
    if unlike:
        lines.append(f"  Unlike engines, which one LLMService cannot have yet: {', '.join(unlike)}.")
    return lines


def about(report: PoolReport) -> list[str]:
    """Say what was simulated, and how far to believe it."""
    stretch = report.stretch
    which = (
        "all of the traces"
        if stretch.requests == stretch.trace_requests
        else f"the busiest {format_clock(stretch.seconds)} of {format_clock(stretch.trace_seconds)}, from "
        f"{format_clock(stretch.start)} on"
    )
    lines = [f"Requests: {which}."]
    for service, arrivals in zip(report.services, stretch.arrivals, strict=True):
        profile = service.costs[service.gpus].profile
        assumed = " (assumed: spec.slo sets none)" if service.slo_assumed else ""
        known = known_error.describe_known_error(find_known_error(profile))
        lines.append(
            f"{service.name}: {len(arrivals)} requests, {len(arrivals) / stretch.seconds:.2f} per second. "
            f"Targets: {targets.format_targets(service.slo)}{assumed}. Step times: {service.model}, "
            f"{profile.engine}, {profile.source}. Known error of the simulator: {known}."
        )
    return [*lines, *(f"Note: {note}." for note in notes(report))]


def notes(report: PoolReport) -> list[str]:
    """Say what is not as in the services, or not known."""
    found = [
        f"{service.name}: {note}"
        for service, arrivals in zip(report.services, report.stretch.arrivals, strict=True)
        for note in (*doubt_clock(arrivals, report.stretch.seconds), *service.engine.notes)
    ]
    found.append("requests are dealt to a service's engines in turn, not by its balancer")
    skipped = report.stretch.skipped
    if skipped:
        found.append(f"{len(skipped)} rows skipped, first: {skipped[0]}")
    return found


def _unlike(plan: SimulatedPlan, service: int) -> bool:
    """Tell whether a service has engines in a group and elsewhere, too."""
    groups = [group for group in plan.groups for engine in group.engines if engine.service == service]
    return len(groups) > 1 and any(len(group.engines) > 1 for group in groups)


def _count(plan: SimulatedPlan | None, today: SimulatedPlan) -> int:
    """Count the GPUs of a plan, today's without one."""
    return plan.gpus if plan else today.gpus


def _setting(report: PoolReport, group: Placed, engine: Engine) -> str:
    service = report.services[engine.service]
    return (
        f"{service.name}: tensorParallelSize: {group.gpus}, "
        f"gpuMemoryUtilizationPercent: {service.memory_percent(engine.kv_tokens, group.gpus)}, "
        f"args: [--kv-cache-memory-bytes={service.kv_bytes(engine.kv_tokens, group.gpus)}]"
    )


def _plan_json(report: PoolReport, plan: SimulatedPlan) -> JsonObject:
    return {
        "gpus": plan.gpus,
        "groups": [
            {
                "gpus": group.gpus,
                "engines": [
                    {
                        "service": service.name,
                        "gpu_memory_utilization_percent": service.memory_percent(
                            engine.kv_tokens, group.gpus
                        ),
                        "kv_cache_memory_bytes": service.kv_bytes(engine.kv_tokens, group.gpus),
                    }
                    for engine in group.engines
                    for service in [report.services[engine.service]]
                ],
            }
            for group in plan.groups
        ],
        "services": {
            service.name: None if figures is None else round_figures(dataclasses.asdict(figures))
            for service, figures in zip(report.services, plan.figures, strict=True)
        },
    }
