"""The catalog from Kubernetes: the operator's LLMRoutes joined with EndpointSlices.

Nothing is published before every list is in once: half a catalog would take routes away. Nor while there are
engines of services whose routes an operator that was just upgraded has still to write.
"""

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from typing import Any, Literal, get_args

from kubernetes.aio import client

from headrace_gateway import metrics
from headrace_gateway.catalog import Catalog, Engine, Publish, Service, ServiceKey
from headrace_gateway.kube import llmroutes
from headrace_gateway.kube.llmroutes import ReadRoute, RouteReader
from headrace_gateway.kube.watch import MUTE_SECONDS, Store, follow_objects

log = logging.getLogger(__name__)

OWNED_LABEL = "app.kubernetes.io/managed-by=headrace"
SERVICE_LABEL = "headrace.dev/service"
OF_SERVICE_LABEL = "kubernetes.io/service-name"  # set by Kubernetes on what it makes for a Service
MOST_ENGINES = 2048  # of a service; an LLMService has at most 1,000 replicas, and twice as many in a rollout
RANDOM_CHARACTERS = 5  # at the end of a pod's name
LEAST_HASH = 6  # characters of its template's hash that a long name has left
GATHER_SECONDS = 0.02  # changes within it are published together
AGAIN_SECONDS = 30.0  # what has not changed is published again, as long as the API server says something
STALE_SECONDS = MUTE_SECONDS + 30.0  # a watch that is mute for longer is started anew meanwhile
FIRST_SECONDS = 60.0  # for which the first routes that come wait for the others
CATALOG_STALE_SECONDS = STALE_SECONDS + 2 * AGAIN_SECONDS

_State = Literal["ready", "unready", "terminating"]
_STATES: tuple[_State, ...] = get_args(_State)
Json = dict[str, Any]


class KubernetesSource:
    """Watches `namespaces` (all, if empty) through `api`.

    What it publishes is up to date if it has published within `CATALOG_STALE_SECONDS` seconds.
    """

    def __init__(self, api: client.ApiClient, namespaces: tuple[str, ...]) -> None:
        self._changed = asyncio.Event()
        self._api = api
        self._scopes: tuple[str | None, ...] = namespaces or (None,)
        self._routes = [Store("LLMRoute", self._changed.set) for _ in self._scopes]
        self._slices = [Store("EndpointSlice", self._changed.set) for _ in self._scopes]
        self._reader = RouteReader()
        self._began: float | None = None  # when the first whole lists were in; -inf: published since

    def read_routes(self) -> Mapping[ServiceKey, ReadRoute]:
        """Return the routes of the catalog that was published last, as they were read; empty before."""
        return self._reader.routes if self._began == -math.inf else {}

    async def run(self, publish: Publish) -> None:
        """Publish the catalog and every change of it, for ever."""
        custom, discovery = client.CustomObjectsApi(self._api), client.DiscoveryV1Api(self._api)
        kind = {"group": llmroutes.GROUP, "version": llmroutes.VERSION, "plural": llmroutes.PLURAL}
        async with asyncio.TaskGroup() as group:
            for scope, routes, slices in zip(self._scopes, self._routes, self._slices, strict=True):
                if scope is None:
                    llm_routes = custom.list_cluster_custom_object
                    endpoint_slices = discovery.list_endpoint_slice_for_all_namespaces
                    where = {}
                else:
                    llm_routes = custom.list_namespaced_custom_object
                    endpoint_slices = discovery.list_namespaced_endpoint_slice
                    where = {"namespace": scope}
                group.create_task(follow_objects(routes, llm_routes, **kind, **where))
                group.create_task(
                    follow_objects(slices, endpoint_slices, label_selector=OWNED_LABEL, **where)
                )
            await self._publish_changes(publish)

    async def _publish_changes(self, publish: Publish) -> None:
        stores, clock = (*self._routes, *self._slices), asyncio.get_running_loop().time
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            changed = self._changed.is_set()
            self._changed.clear()
            known = all(store.objects is not None for store in stores)
            if known and (changed or clock() - min(store.heard for store in stores) < STALE_SECONDS):
                try:
                    services, slices = self._reader.read(_all(self._routes)), _all(self._slices)
                    if self._may_begin(clock()):
                        publish(join_engines(services, slices))
                except Exception:  # no object in the cluster may end the gateway for all the others
                    metrics.CONFIG_ERRORS.inc()
                    log.exception("this catalog could not be published; the one before stays in force")

    def _may_begin(self, now: float) -> bool:
        """Tell whether each engine has its route, of the services there were when this picker started.

        Before anything was published, that is: an operator of an earlier release wrote no routes. As long as
        there is not one, this picker waits; those that come wait for the others a little while.
        """
        if self._began == -math.inf:
            return True
        if self._began is None:
            self._began = now
        engines = {_service_of(each) for each in _all(self._slices)} - {None}
        routed = self._reader.routes.keys()
        if engines - routed and not (routed and now - self._began > FIRST_SECONDS):
            log.info("waiting for the routes of %d services", len(engines - routed))
            return False
        self._began = -math.inf
        return True


def join_engines(services: Iterable[Service], slices: Iterable[Json]) -> Catalog:
    """Join services with their engines: the addresses in their EndpointSlices."""
    found: dict[_State, dict[ServiceKey, dict[str, set[Engine]]]] = {state: {} for state in _STATES}
    for each in slices:
        key = _service_of(each)
        if key is None:
            continue
        family = each.get("addressType", "IPv4")
        for endpoint in each.get("endpoints") or ():
            state = _state(endpoint.get("conditions") or {})
            engines = found[state].setdefault(key, {}).setdefault(family, set())
            if len(engines) < MOST_ENGINES:
                pod = endpoint.get("targetRef") or {}
                uid, revision = pod.get("uid") or "", _revision(key.name, pod.get("name") or "")
                # The API allows more addresses, and says: use one.
                engines.update(Engine(each, uid, revision) for each in (endpoint.get("addresses") or ())[:1])
    return Catalog.build(
        service.with_engines(*(_one_family(found[state].get(service.key, {})) for state in _STATES))
        for service in services
    )


def _state(conditions: Json) -> _State:
    if conditions.get("ready") is not False:
        return "ready"
    return "terminating" if conditions.get("terminating") else "unready"


def _service_of(endpoint_slice: Json) -> ServiceKey | None:
    """Return whose engines these are; None if they are of another Service that bears the label."""
    labels = endpoint_slice["metadata"].get("labels") or {}
    name = labels.get(SERVICE_LABEL)
    if not name or labels.get(OF_SERVICE_LABEL) != name:
        return None
    return ServiceKey(endpoint_slice["metadata"]["namespace"], name)


def _revision(service: str, pod: str) -> str:
    """Return what the names of pods of one template have in common; empty where a long name was cut."""
    common = pod[:-RANDOM_CHARACTERS]
    is_whole = common.startswith(f"{service}-") and len(common) > len(service) + LEAST_HASH
    return common if is_whole else ""


def _one_family(families: dict[str, set[Engine]]) -> Set[Engine]:
    """Leave one address of a dual-stack pod, which is one engine; IPv4 where there is any."""
    return families.get("IPv4") or families.get("IPv6") or frozenset()


def _all(stores: Iterable[Store]) -> list[Json]:
    return [each for store in stores for each in (store.objects or {}).values()]
