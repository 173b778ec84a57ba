"""Devices by dynamic resource allocation: each replica's own, or those of a group, whose members share them.

ResourceClaimTemplate NAME-gpu of a service, ResourceClaim POOL-GROUP-gpu-HASH of a group, with more behind it
if one that asked for the same is being deleted. Their content can never change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headrace_operator import names
from headrace_operator.api import GPUPool, LLMService
from headrace_operator.api.bodies import Body, JsonObject, is_ending
from headrace_operator.api.engine import Dra
from headrace_operator.api.gpu_pool import Group
from headrace_operator.desired.manifest import Manifest, content_hash, manifest, owner

REQUEST = "gpu"
_API_VERSION = "resource.k8s.io/v1"


def resource_claim_template(service: LLMService, dra: Dra) -> Manifest:
    """Ask for as many devices of the class as the model is spread over, for each replica."""
    return manifest(
        service,
        _API_VERSION,
        "ResourceClaimTemplate",
        names.claim_template(service.key),
        spec={"spec": _devices(dra, service.spec.engine.tensor_parallel_size)},
    )


def group_claim(
    pool: GPUPool,
    group: Group,
    dra: Dra,
    count: int,
    *,
    live: Iterable[Body] = (),
    lost: Collection[str] = (),
) -> Manifest:
    """Ask for the devices of a group; other devices are another claim.

    It is one of the `live` claims that asks for that, if one is neither being deleted nor `lost`; else one
    beside those.
    """
    spec = _devices(dra, count)
    first = names.group_claim(pool.key, group.name, content_hash(spec))
    return manifest(
        pool,
        _API_VERSION,
        "ResourceClaim",
        _name_that_stays(pool, first, live, lost),
        {names.POOL_GROUP_LABEL: group.name},
        spec=spec,
    )


def _name_that_stays(pool: GPUPool, first: str, live: Iterable[Body], lost: Collection[str]) -> str:
    """Return the name of the newest claim that may be kept, of those called `first` or so; else a new one."""
    alike = [claim for claim in live if f"{claim['metadata']['name']}-".startswith(f"{first}-")]
    kept: list[tuple[str, str]] = [
        (claim["metadata"].get("creationTimestamp", ""), claim["metadata"]["name"])
        for claim in alike
        if owner(claim) == pool.uid and not is_ending(claim) and claim["metadata"]["name"] not in lost
    ]
    if kept:
        return max(kept)[1]
    uids = sorted(claim["metadata"]["uid"] for claim in alike)
    return f"{first}-{content_hash(uids)[:4]}" if uids else first


def _devices(dra: Dra, count: int) -> JsonObject:
    request = {
        "name": REQUEST,
        "exactly": {
            "deviceClassName": dra.device_class_name,
            "allocationMode": "ExactCount",
            "count": count,
            # Also when there are none: a field that is not said is one that the live object may have.
            "selectors": [selector.as_body() for selector in dra.selectors],
        },
    }
    return {"devices": {"requests": [request]}}


def is_allocated(claim: Body | None) -> bool:
    """Tell whether a live claim has its devices: it gets them with the first pod, and on that pod's node."""
    return bool(((claim or {}).get("status") or {}).get("allocation"))


def devices_in(claim: Body) -> list[str]:
    """Name the devices that a live claim has, each with its pool, which most drivers call after its node."""
    results = claim["status"]["allocation"].get("devices", {}).get("results") or ()
    return [f"{result['pool']}/{result['device']}" for result in results]


def request_in(claim: Body) -> tuple[str | None, list[JsonObject]]:
    """Return the device class and the selectors that a live claim asks for."""
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or [{}]
    exactly = requests[0].get("exactly") or {}
    return exactly.get("deviceClassName"), exactly.get("selectors") or []
