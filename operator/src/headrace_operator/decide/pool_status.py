"""The status of a GPUPool: whether its groups take turns, its plan, and what a user can do about it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from pydantic import ValidationError

from headrace_operator import names
from headrace_operator.api import Condition, GPUPool, PoolStatus, Reason, is_paused
from headrace_operator.api.bodies import Body, is_ending
from headrace_operator.api.gpu_pool import placement_in
from headrace_operator.api.placement import Placement, PlacementStatus, PlanStatus
from headrace_operator.decide.adoption import adopt
from headrace_operator.decide.condition_state import STATUSES, ConditionState, make_condition, told_before
from headrace_operator.decide.moves import Moves
from headrace_operator.decide.observation import Observation
from headrace_operator.decide.readiness import stalled_state
from headrace_operator.desired.resource_claims import devices_in, is_allocated
from headrace_operator.errors import RefusedError
from headrace_operator.planning.question import Answer

_HOLDS = {text: holds for holds, text in STATUSES.items()}


def build_pool_status(
    body: Body,
    pool: GPUPool | None,
    observed: Observation,
    services: Collection[str],
    *,
    problem: Exception | None,
    answer: Answer | None,
    moves: Moves,
    now: str,
) -> PoolStatus:
    """Build the status of a raw GPUPool at `now` (RFC 3339, UTC).

    `pool`: as it was parsed, None if it is not valid. `services`: names of those that its namespace has.
    `problem`: what stood against this pass. `answer`: about the pool's plan; None if there is none yet.
    `moves`: of the services that it places.
    """
    generation, previous = body["metadata"].get("generation", 1), body.get("status") or {}
    states = {
        Condition.ACCEPTED: _accepted(problem),
        Condition.READY: _ready(pool, observed, services, problem),
    }
    if pool is None or pool.groups:
        states[Condition.PLACED] = _placed(pool, observed)
    if pool is not None and pool.placement is not None:
        states[Condition.PLANNED] = _planned(pool, pool.placement, services, answer, previous)
    before = placement = placement_in(previous) if pool is None or pool.places_services else None
    if pool is not None and pool.places_services:
        stays = problem is not None or is_paused(body["metadata"]) or moves.moving
        if answer is not None and answer.plan is not None and not stays:
            placement = adopt(before, answer.plan, now)
        states[Condition.AS_PLANNED] = _as_planned(placement, moves, is_new=placement is not before)
    refused = problem if isinstance(problem, RefusedError) else None
    states[Condition.STALLED] = stalled_state(None, observed, refused)
    return PoolStatus(
        observed_generation=generation,
        conditions=tuple(
            make_condition(kind, state, previous, generation, now) for kind, state in states.items()
        ),
        plan=_plan(pool, answer, previous),
        placement=placement,
    )


def _accepted(problem: Exception | None) -> ConditionState:
    if isinstance(problem, RefusedError):
        return ConditionState(False, problem.reason, f"{problem}. Groups stay as they are")
    return ConditionState(True, Reason.VALID, "the spec is valid")


def _ready(
    pool: GPUPool | None, observed: Observation, services: Collection[str], problem: Exception | None
) -> ConditionState:
    if problem is not None and not isinstance(problem, RefusedError):
        return ConditionState(False, Reason.RECONCILE_ERROR, str(problem) or type(problem).__name__)
    if pool is None:
        return ConditionState(False, Reason.NOT_ACCEPTED, "the spec is not accepted")
    if not pool.groups:
        return ConditionState(True, Reason.ALL_GROUPS_READY, "there are no groups")
    if missing := "; ".join(_missing(pool, services)):
        return ConditionState(False, Reason.MEMBER_NOT_FOUND, missing)
    waiting = [group.name for group in pool.groups if not _serves(pool, group.name, observed)]
    if waiting:
        return ConditionState(
            False,
            Reason.TURN_SERVER_NOT_READY,
            f"no turn server is ready for {', '.join(waiting)}: their engines compute whenever they want. "
            f"`kubectl get pods -l {names.POOL_LABEL}={pool.key.name}` shows it",
        )
    return ConditionState(True, Reason.ALL_GROUPS_READY, "every group takes turns")


def _placed(pool: GPUPool | None, observed: Observation) -> ConditionState:
    if pool is None:
        return ConditionState(None, Reason.NOT_ACCEPTED, "the spec is not accepted")
    states = [_placed_group(group.name, observed) for group in pool.groups]
    worst = next((state for state in states if not state.holds), states[0])
    return replace(
        worst, message="; ".join(state.message for state in states if state.reason == worst.reason)
    )


def _placed_group(group: str, observed: Observation) -> ConditionState:
    claims = _claims(group, observed)
    if not claims:
        return ConditionState(
            False,
            Reason.NO_CLAIM,
            f"group {group}: it has no ResourceClaim, which members get that ask for devices by "
            "spec.accelerator.dra: so they share a GPU only where the cluster places them so, as on nodes "
            "with one",
        )
    deleted = [claim["metadata"]["name"] for claim in claims if is_ending(claim)]
    allocated = [claim for claim in claims if is_allocated(claim) and not is_ending(claim)]
    if not allocated and deleted:
        return ConditionState(
            False,
            Reason.CLAIM_DELETED,
            f"group {group}: ResourceClaim {', '.join(deleted)} was deleted, by somebody or since its node "
            "ends no pod any more: members get devices anew with their next pods, if a node has them free",
        )
    if not allocated:
        return ConditionState(
            False,
            Reason.DEVICES_NOT_ALLOCATED,
            f"group {group}: no node has its devices yet; the first pod of a member gets them, if a node has "
            "them free: members that still have devices of their own leave those one after another",
        )
    return ConditionState(
        True, Reason.DEVICES_SHARED, f"group {group}: on {', '.join(devices_in(allocated[-1]))}"
    )


def _planned(
    pool: GPUPool, placement: Placement, services: Collection[str], answer: Answer | None, previous: Body
) -> ConditionState:
    missing = [service.name for service in placement.services if service.name not in services]
    if missing:
        return ConditionState(
            False,
            Reason.MEMBER_NOT_FOUND,
            f"no LLMService {', '.join(missing)} in namespace {pool.key.namespace}; a plan is made without",
        )
    if answer is not None:
        return ConditionState(answer.plan is not None, answer.reason, answer.message)
    before = told_before(Condition.PLANNED, previous)
    known = before.get("observedGeneration") == pool.generation  # by an operator that has ended since
    if known and before["reason"] != Reason.MEMBER_NOT_FOUND:
        return ConditionState(_HOLDS[before["status"]], before["reason"], before.get("message", ""))
    return ConditionState(None, Reason.PLANNING, "engines are asked for their traffic, and a plan is made")


def _plan(pool: GPUPool | None, answer: Answer | None, previous: Body) -> PlanStatus | None:
    """Return the last plan; it stays, with its time, while no newer one can be made."""
    if pool is not None and pool.placement is None:
        return None
    if answer is not None and answer.plan is not None:
        return answer.plan
    try:
        return PlanStatus.model_validate(previous.get("plan"))
    except ValidationError:  # there is none, or another release made it
        return None


def _as_planned(placement: PlacementStatus | None, moves: Moves, *, is_new: bool) -> ConditionState:
    """Say whether services run where `placement` has them; if it `is_new`, `moves` are of the one before."""
    if is_new:
        return ConditionState(False, Reason.MOVING, "services begin to move where status.placement has them")
    if placement is None:
        return ConditionState(
            True, Reason.NOTHING_TO_MOVE, "services run as their specs say: no plan was worth a move yet"
        )
    later = [name for name in moves.waiting if name not in moves.down]
    waiting = f"; after that {', '.join(later)}" if later else ""
    if moves.moving or moves.down:
        return ConditionState(False, Reason.MOVING, f"{_move(moves)}{waiting}")
    if moves.given_up:
        return ConditionState(
            False,
            Reason.MOVE_FAILED,
            f"{', '.join(moves.given_up)}: engines did not start where status.placement has them, and run "
            f"where they were; the conditions of the LLMService say why{waiting}",
        )
    if moves.waiting:
        return ConditionState(
            False,
            Reason.MOVE_BLOCKED,
            f"{', '.join(moves.waiting)}: no room yet on the devices that they are to share, or no GPU that "
            "nobody of the pool has: raise spec.placement.gpus.count if there are more, or let a replica end "
            "first by spec.disruption.maxUnavailable",
        )
    return ConditionState(True, Reason.NOTHING_TO_MOVE, "services run as status.placement says")


def _move(moves: Moves) -> str:
    """Say who moves, how, and whom that leaves without engines."""
    beside = moves.surging.issuperset(moves.moving)
    how = "new engines start beside the old ones" if beside else "old engines end first"
    moving = [f"{', '.join(moves.moving)} to be ready, {how}"] if moves.moving else []
    down = [f"{', '.join(sorted(moves.down))} without engines until another has moved"] if moves.down else []
    return "; ".join([*moving, *down])


def _missing(pool: GPUPool, services: Collection[str]) -> Iterator[str]:
    for group in pool.groups:
        missing = [member for member in group.members if member not in services]
        if missing:
            yield (
                f"group {group.name}: no LLMService {', '.join(missing)} in namespace {pool.key.namespace}; "
                "the others take turns without"
            )


def _serves(pool: GPUPool, group: str, observed: Observation) -> bool:
    live = observed.deployment(names.turn_server(pool.key, group))
    return bool(((live or {}).get("status") or {}).get("availableReplicas"))


def _claims(group: str, observed: Observation) -> list[Body]:
    return [
        body
        for (kind, _), body in observed.objects.items()
        if kind == "ResourceClaim" and body["metadata"]["labels"].get(names.POOL_GROUP_LABEL) == group
    ]
