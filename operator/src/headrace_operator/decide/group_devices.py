"""Which devices the members of a group share, and whether all have room there. Pure.

Members that ask for their devices by a claim share one; all others keep those that they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headrace_operator.api import LLMService, Reason
from headrace_operator.api.bodies import Body
from headrace_operator.decide.places import KV_BYTES, WHOLE, memory_taken, place_of
from headrace_operator.decide.turn_groups import Membership
from headrace_operator.desired import Manifest
from headrace_operator.desired.resource_claims import group_claim, request_in
from headrace_operator.errors import RefusedError


def claim_of_group(
    place: Membership,
    members: Sequence[LLMService],
    live: Iterable[Body] = (),
    lost: Collection[str] = (),
) -> Manifest | None:
    """Make the claim that the members share; None if they ask for none. Raises RefusedError.

    `members`: those of the group that exist. `live`: claims that exist, of which it may be one that is not
    `lost`.
    """
    if not members:
        return None
    first, *others = members
    dra = first.spec.accelerator.dra
    for other in others:
        if other.spec.accelerator.dra != dra:
            raise RefusedError(
                Reason.MEMBERS_DIFFER,
                f"{place}: spec.accelerator.dra of {other.key.name} is not that of "
                f"{first.key.name}: members of a group share devices, so give it to all of them, or to none",
            )
    if dra is None:
        return None
    check_memory(place, members)
    count = max(member.spec.engine.tensor_parallel_size for member in members)
    return group_claim(place.pool, place.group, dra, count, live=live, lost=lost)


def suits(claim: Body, service: LLMService) -> bool:
    """Tell whether the devices of a live claim are what the service asks for."""
    dra, asked = service.spec.accelerator.dra, request_in(claim)
    return dra is not None and asked == (
        dra.device_class_name,
        [selector.as_body() for selector in dra.selectors],
    )


def check_memory(place: Membership, members: Iterable[LLMService]) -> None:
    """Raise RefusedError unless each says what it takes, and all have room: nothing else counts it.

    One that is scaled to zero takes as much as one replica.
    """
    shares = {each.key.name: place_of(each)._replace(replicas=max(each.replicas, 1)) for each in members}
    for member, share in shares.items():
        if share.memory_percent is None:
            raise _refusal(
                place,
                f"{member} may take the whole GPU: set its spec.engine.gpuMemoryUtilizationPercent",
            )
        if share.kv_bytes is None:
            raise _refusal(
                place,
                f"{member} would take for its KV cache what it finds free while others start and end: "
                f"give spec.engine.args --{KV_BYTES}=BYTES",
            )
    total = memory_taken(shares.values())
    if total > WHOLE:
        taken = ", ".join(
            f"{member} {share.replicas} x {share.memory_percent} %" for member, share in shares.items()
        )
        raise _refusal(
            place,
            f"its members take {total} % of a GPU's memory ({taken}): lower "
            "spec.engine.gpuMemoryUtilizationPercent or spec.replicas",
        )


def _refusal(place: Membership, words: str) -> RefusedError:
    return RefusedError(Reason.MEMORY_OVERCOMMITTED, f"{place}: {words}")
