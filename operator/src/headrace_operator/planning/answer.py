"""From what services are asked to the plan for their pool. Pure: the same question has the same answer."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_engine.cost import catalog
from headrace_operator.api import LLMService, Reason, parse_pool
from headrace_operator.api.gpu_pool import Group
from headrace_operator.api.placement import Placement, PlanStatus
from headrace_operator.errors import RefusedError
from headrace_operator.placement import problem
from headrace_operator.placement.problem import Nodes, Plan, divide_gpus, make_plan
from headrace_operator.placement.recommend import recommend
from headrace_operator.placement.score import FitsNowhereError
from headrace_operator.placement.traffic import busiest_span
from headrace_operator.planning.asked_service import AskedService, read_asked
from headrace_operator.planning.plan_words import FoundPlan
from headrace_operator.planning.question import Answer, Question
from headrace_operator.simulate.simulated_engine import RESERVED, UTILIZATION

MOST_REQUESTS = 10_000  # that a plan is made from, of all services together
WORK = 500_000  # requests that the search for one number of GPUs may estimate


def make_answer(question: Question) -> Answer:
    """Make the plan, or say why there is none."""
    try:
        plan = _make_plan(question)
    except RefusedError as error:
        return Answer(Reason(error.reason), str(error))
    message = f"{plan.gpus} GPUs, today {plan.gpus_today}: status.plan says who should share them"
    return Answer(Reason.PLAN_MADE, message, plan)


def _make_plan(question: Question) -> PlanStatus:
    pool = parse_pool(question.pool)
    if pool.placement is None:
        raise ValueError(f"{pool.key}: spec.placement is not set")
    services = [
        read_asked(told, pool.placement, pool.find_placed(told.service["metadata"]["name"]))
        for told in question.services
    ]
    if pool.places_services:
        _check_devices([service.simulated.service for service in services])
    span = busiest_span([service.windows for service in services], MOST_REQUESTS)
    if not span.seconds:
        raise RefusedError(
            Reason.NO_TRAFFIC,
            "the services were asked nothing in the last hour; a plan is made once they are",
        )
    share = min(1.0, MOST_REQUESTS / sum(service.count(span) for service in services))
    today = _today(services, pool.groups)
    gpus_today = sum(gpus for gpus, _ in today)
    gpus = pool.placement.gpus.count or gpus_today
    try:
        found = recommend(
            [service.as_placed(span, share) for service in services],
            _as_plan(today, services),
            _nodes(pool.placement, gpus),
            WORK,
        )
    except FitsNowhereError as error:
        raise RefusedError(Reason.NO_ROOM, f"spec.placement.gpus: {error}") from error
    if found is None:
        raise RefusedError(
            Reason.NO_ROOM,
            f"spec.placement.gpus.count: no plan was found that has room for all services on {gpus} GPUs: "
            "give more, or leave out a service",
        )
    return FoundPlan(services, found, pool.placement.gpus.type, gpus_today, span).as_status(question.time)


def _check_devices(services: Sequence[LLMService]) -> None:
    """Raise RefusedError unless all services ask for devices that any of them can share."""
    first, *others = services
    for service in services:
        if service.spec.accelerator.dra is None:
            raise RefusedError(
                Reason.MEMBERS_DIFFER,
                f"LLMService {service.key.name} has no spec.accelerator.dra, which mode Auto needs to share "
                "its devices: set it, or take the service out of spec.placement.services",
            )
    for other in others:
        if other.spec.accelerator.dra != first.spec.accelerator.dra:
            raise RefusedError(
                Reason.MEMBERS_DIFFER,
                f"spec.accelerator.dra of LLMService {other.key.name} is not that of {first.key.name}: mode "
                "Auto shares devices of one kind, so give it to all of spec.placement.services",
            )


def _nodes(placement: Placement, gpus: int) -> Nodes:
    of_a_gpu = int(catalog.gpu_bytes(placement.gpus.type) * UTILIZATION)
    return Nodes(divide_gpus(gpus, placement.gpus.per_node), of_a_gpu, RESERVED)


def _today(services: Sequence[AskedService], groups: Sequence[Group]) -> list[problem.Group]:
    """List the groups of today's engines, each as large as the largest of them; the others have their own."""
    numbers = {service.name: number for number, service in enumerate(services)}
    found = []
    for group in groups:
        members = [numbers[name] for name in group.members if name in numbers]
        if members:
            gpus = max(services[number].simulated.gpus for number in members)
            engines = [number for number in members for _ in range(services[number].simulated.replicas)]
            found.append(problem.Group(gpus, tuple(sorted(engines))))
    together = {name for group in groups for name in group.members}
    for name, number in numbers.items():
        if name not in together:
            service = services[number].simulated
            found += [problem.Group(service.gpus, (number,))] * service.replicas
    return found


def _as_plan(today: list[problem.Group], services: Sequence[AskedService]) -> Plan | None:
    """Return today's engines as a plan; None where those of a group are split over unlike numbers of GPUs."""
    even = all(services[member].simulated.gpus == gpus for gpus, members in today for member in members)
    return make_plan(today) if even else None
