"""The catalog from Kubernetes: the operator's ConfigMaps joined with EndpointSlices.

Only reads. A ConfigMap that cannot be read, or that speaks for a service other than its own, leaves its
service as it was. Nothing is published before every list is in once: half a catalog would take routes away.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kubernetes.aio import client

from headrace_engine.contracts import ContractError, GatewayConfig, loads
from headrace_sidecar.gateway import metrics
from headrace_sidecar.gateway.catalog import Catalog, Service, ServiceKey
from headrace_sidecar.gateway.server import Publish
from headrace_sidecar.gateway.watch import MUTE_SECONDS, Store, follow

log = logging.getLogger(__name__)

CONFIG_LABEL = "headrace.dev/gateway-config=true"
OWNED_LABEL = "app.kubernetes.io/managed-by=headrace"
SERVICE_LABEL = "headrace.dev/service"
CONFIG_KEY = "gateway.json"
MAX_MODELS = 16
MAX_MODEL_LENGTH = 253  # an LLMService allows less
GATHER_SECONDS = 0.02  # changes within it are published together
AGAIN_SECONDS = 30.0  # what has not changed is published again, as long as the API server says something
STALE_SECONDS = MUTE_SECONDS + 30.0  # a watch that is mute for longer is started anew meanwhile
PATIENCE = STALE_SECONDS + 2 * AGAIN_SECONDS

Json = dict[str, Any]


class KubernetesSource:
    """Watches `namespaces` (all, if empty) through `api`.

    What it publishes is up to date if it has published within `PATIENCE` seconds.
    """

    def __init__(self, api: client.ApiClient, namespaces: tuple[str, ...]) -> None:
        self._changed = asyncio.Event()
        self._api = api
        self._scopes: tuple[str | None, ...] = namespaces or (None,)
        self._configs = [Store("ConfigMap", self._changed.set) for _ in self._scopes]
        self._slices = [Store("EndpointSlice", self._changed.set) for _ in self._scopes]
        self._reader = ConfigReader()

    async def run(self, publish: Publish) -> None:
        """Publish the catalog and every change of it, for ever."""
        core, discovery = client.CoreV1Api(self._api), client.DiscoveryV1Api(self._api)
        async with asyncio.TaskGroup() as group:
            for scope, configs, slices in zip(self._scopes, self._configs, self._slices, strict=True):
                if scope is None:
                    config_maps = core.list_config_map_for_all_namespaces
                    endpoint_slices = discovery.list_endpoint_slice_for_all_namespaces
                    where = {}
                else:
                    config_maps = core.list_namespaced_config_map
                    endpoint_slices = discovery.list_namespaced_endpoint_slice
                    where = {"namespace": scope}
                group.create_task(follow(configs, config_maps, label_selector=CONFIG_LABEL, **where))
                group.create_task(follow(slices, endpoint_slices, label_selector=OWNED_LABEL, **where))
            await self._publish_changes(publish)

    async def _publish_changes(self, publish: Publish) -> None:
        stores, clock = (*self._configs, *self._slices), asyncio.get_running_loop().time
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
                    publish(join(self._reader.read(_all(self._configs)), _all(self._slices)))
                except Exception:  # no object in the cluster may end the gateway for all the others
                    metrics.CONFIG_ERRORS.inc()
                    log.exception("this catalog could not be published; the one before stays in force")


class ConfigReader:
    """Reads ConfigMaps into services; remembers the last good configuration of each."""

    def __init__(self) -> None:
        self._good: dict[ServiceKey, tuple[str, GatewayConfig]] = {}  # text and what it says
        self._refused: dict[ServiceKey, str] = {}  # text

    def read(self, config_maps: Iterable[Json]) -> list[Service]:
        """Services, still without engines."""
        services, seen = [], set()
        for config_map in config_maps:
            metadata = config_map["metadata"]
            key = ServiceKey(metadata["namespace"], metadata["name"].removesuffix("-gateway"))
            seen.add(key)
            self._read_one(key, (config_map.get("data") or {}).get(CONFIG_KEY, ""))
            if key in self._good:
                services.append(Service(self._good[key][1], since=metadata.get("creationTimestamp") or ""))
        for remembered in (self._good, self._refused):
            for gone in remembered.keys() - seen:
                del remembered[gone]
        return services

    def _read_one(self, key: ServiceKey, text: str) -> None:
        good = self._good.get(key)
        if (good is not None and good[0] == text) or self._refused.get(key) == text:
            return
        try:
            self._good[key] = (text, parse(key, text))
            self._refused.pop(key, None)
        except ContractError as error:
            self._refused[key] = text
            metrics.CONFIG_ERRORS.inc()
            log.warning("gateway configuration of %s is not used: %s", key, error)


def parse(key: ServiceKey, text: str) -> GatewayConfig:
    """The configuration in the ConfigMap of service `key`; raises ContractError."""
    config = loads(GatewayConfig, text)
    if (config.namespace, config.name) != key:
        raise ContractError(
            f"it speaks for {config.namespace}/{config.name}, but its ConfigMap is that of {key}"
        )
    for field, port in (("port", config.port), ("sidecar_port", config.sidecar_port)):
        if not 1 <= port <= 65535:
            raise ContractError(f"{field} is {port}, not a port from 1 to 65535")
    if len(config.models) > MAX_MODELS:
        raise ContractError(f"models has {len(config.models)} names, more than {MAX_MODELS}")
    for model in config.models:
        if not (0 < len(model) <= MAX_MODEL_LENGTH and model.isprintable()):
            raise ContractError(f"models: {model[:64]!r} is not 1 to {MAX_MODEL_LENGTH} printable characters")
    return config


def join(services: Iterable[Service], slices: Iterable[Json]) -> Catalog:
    """Services with the addresses of their engines."""
    ready: dict[ServiceKey, dict[str, set[str]]] = {}
    unready: dict[ServiceKey, dict[str, set[str]]] = {}
    for each in slices:
        metadata = each["metadata"]
        key = ServiceKey(metadata["namespace"], metadata.get("labels", {}).get(SERVICE_LABEL, ""))
        family = each.get("addressType", "IPv4")
        for endpoint in each.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            if conditions.get("ready") is False and conditions.get("terminating"):
                continue
            kind = unready if conditions.get("ready") is False else ready
            kind.setdefault(key, {}).setdefault(family, set()).update(endpoint.get("addresses") or ())
    return Catalog.of(
        service.with_addresses(
            _one_family(ready.get(service.key, {})), _one_family(unready.get(service.key, {}))
        )
        for service in services
    )


def _one_family(families: dict[str, set[str]]) -> Iterable[str]:
    """A dual-stack pod has an address in each family but is one engine; IPv4 where there is any."""
    return families.get("IPv4") or families.get("IPv6") or ()


def _all(stores: Iterable[Store]) -> list[Json]:
    return [each for store in stores for each in (store.objects or {}).values()]
