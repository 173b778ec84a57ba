"""What an earlier release left: ConfigMap NAME-gateway, from which pickers of that release read a route.

Its content becomes an LLMRoute at once, also of a service that is paused or whose spec is not accepted: so a
picker of this release serves what one of the earlier did. The ConfigMap goes when such pickers are long gone.
Who may edit ConfigMaps may have changed it, so no model's name is taken from there but the service's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace_engine.contracts import ContractError, GatewayConfig, decode
from headrace_operator import names
from headrace_operator.api import ROUTE_KIND, Key, is_paused, key_of, served_name_of
from headrace_operator.api.bodies import Body
from headrace_operator.decide.observation import Observation
from headrace_operator.desired import Manifest, owner
from headrace_operator.desired.llm_route import route_of
from headrace_operator.desired.manifest import with_content_hash
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import Cluster

LABEL = f"{names.SERVICE_LABEL.partition('/')[0]}/gateway-config"
FILE = "gateway.json"
# Seconds that a route must be old. A rollout of pickers has failed by then, or all are of this release.
_OVERLAP = 600.0


@dataclass(frozen=True, slots=True)
class _Owner:
    key: Key
    uid: str


async def migrate_config_map(service: Body, observed: Observation, cluster: Cluster, cache: Cache) -> None:
    """Write the route of a raw LLMService that has but the ConfigMap, or end that. Raises ApiError."""
    key, uid = key_of(service), service["metadata"]["uid"]
    left = observed.objects.get(("ConfigMap", f"{key.name}-gateway"))
    if left is None or owner(left) != uid or LABEL not in (left["metadata"].get("labels") or {}):
        return
    route = observed.objects.get((ROUTE_KIND, key.name))
    if route is None:
        wanted = served_name_of(service)
        found = translate_config_map(
            service, left, cache.services_asking_for(wanted), taken=bool(cache.services_routing(wanted))
        )
        if found is not None:
            cache.put(await cluster.apply(found))
    elif not is_paused(service["metadata"]) and _age(route) > _OVERLAP:
        await cluster.delete("ConfigMap", key.namespace, left["metadata"]["name"], left["metadata"]["uid"])
        cache.discard_owned(key, "ConfigMap", left["metadata"]["name"])


def translate_config_map(
    service: Body,
    left: Body,
    services_asking_for: Iterable[Body],
    *,
    taken: bool = False,
) -> Manifest | None:
    """Make a route of what ConfigMap `left` told; None if it cannot be read.

    `claiming`: who may have a claim to the served name; `taken`: a route has it.
    """
    key, metadata, wanted = key_of(service), service["metadata"], served_name_of(service)
    own = names.qualified(key)
    try:
        told = json.loads((left.get("data") or {}).get(FILE, ""))
        seconds = told.pop("maxQueueSeconds", None)
        told |= {"namespace": key.namespace, "name": key.name, "models": [own]}
        told |= {"port": names.HTTP_PORT, "sidecarPort": names.SIDECAR_PORT}
        if seconds is not None:
            told["maxQueueMs"] = round(seconds * 1000)
        config = decode(GatewayConfig, told)
    except (ContractError, AttributeError, TypeError, ValueError):
        return None
    rivals = [other for other in services_asking_for if key_of(other) != key]
    mine = not taken and all(
        names.qualified(key_of(other)) != wanted and _since(service) < _since(other) for other in rivals
    )
    manifest = route_of(_Owner(key, metadata["uid"]), config)
    if mine and wanted != own:
        manifest["spec"]["models"].append(wanted)
    return with_content_hash(manifest)


def _since(service: Body) -> tuple[str, Key]:
    return service["metadata"].get("creationTimestamp") or "", key_of(service)


def _age(body: Body) -> float:
    made = datetime.fromisoformat(body["metadata"]["creationTimestamp"])
    return (datetime.now(UTC) - made).total_seconds()
