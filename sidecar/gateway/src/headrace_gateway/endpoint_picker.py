"""The endpoint picker of one InferencePool: `python3 -m headrace_gateway.endpoint_picker`.

It runs in the namespace of an LLMService, whose engines are the pool's, and answers the gateways of others
that route to the pool: which engine gets a request. Its gRPC server has a certificate of its own making, for
those gateways expect one and do not check it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from random import Random

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from kubernetes.aio import client

from headrace_gateway import certificate, probes, process
from headrace_gateway.catalog import Catalog, ServiceKey
from headrace_gateway.kube import configuration
from headrace_gateway.kube.catalog_source import KubernetesSource
from headrace_gateway.launch import launch
from headrace_gateway.pick import ext_proc
from headrace_gateway.pick.peers import Find, by_name, sharing
from headrace_gateway.pick.picker import Picker
from headrace_gateway.pick.prompt_reader import PromptReader
from headrace_gateway.reports import load_client
from headrace_gateway.server import DRAIN_SECONDS, Source
from headrace_gateway.settings import Settings, SettingsError

log = logging.getLogger(__name__)

LIVENESS = "liveness"  # by the Inference Extension's names of what gRPC health checks ask
READY = ("", "readiness", ext_proc.GRPC_SERVICE)
MESSAGE_OVERHEAD = 1 << 20  # over the largest body: headers


class Health(health_pb2_grpc.HealthServicer):
    """gRPC's health checks; `lacks` says what is missing to be ready, empty: nothing."""

    def __init__(self, lacks: Callable[[], str]) -> None:
        self._lacks = lacks

    async def Check(  # noqa: N802  (gRPC's name)
        self, request: HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> HealthCheckResponse:
        """Tell whether a service of this server works."""
        if request.service not in {LIVENESS, *READY}:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{request.service!r} is not served here")
        works = request.service == LIVENESS or not self._lacks()
        state = HealthCheckResponse.SERVING if works else HealthCheckResponse.NOT_SERVING
        return HealthCheckResponse(status=state)


async def serve(chosen: Settings, source: Source, find_peers: Find | None = None) -> None:
    """Run until SIGTERM or SIGINT; raises what the source raises."""
    key = ServiceKey(chosen.pod_namespace, chosen.service)
    picker = Picker(time.monotonic, Random())  # noqa: S311  (balancing, not cryptography)
    missing, leaving = probes.NO_CATALOG, False

    def lacks() -> str:
        return "on its way out" if leaving else missing

    async with (
        load_client.client(picker.observe, picker.random) as loads,
        PromptReader() as reader,
        sharing(picker, chosen, find_peers),
        asyncio.TaskGroup() as group,
    ):

        def publish(catalog: Catalog) -> None:
            nonlocal missing
            own = Catalog({key: catalog.services[key]} if key in catalog.services else {})
            picker.set_catalog(own)
            loads.set_catalog(own)
            missing = "" if own.services else f"there is no LLMService {key}, or it is not accepted yet"

        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", chosen.max_body_bytes + MESSAGE_OVERHEAD),
                *process.GRPC_OPTIONS,
            ]
        )
        processor = ext_proc.ExternalProcessor(key, picker, reader, chosen.max_body_bytes)
        server.add_generic_rpc_handlers((processor.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(Health(lacks), server)
        where = f"{chosen.address}:{chosen.ads_port}"
        server.add_secure_port(where, certificate.self_signed()) if chosen.tls else server.add_insecure_port(
            where
        )
        await server.start()
        http = await probes.start(chosen, picker, lacks)
        feeding = group.create_task(source(publish))
        process.leave_to_stay()
        log.info("the endpoint picker of %s listens on %s", key, where)
        await process.stop_signal(feeding)
        leaving = True
        await asyncio.sleep(DRAIN_SECONDS)
        feeding.cancel()
        await server.stop(grace=DRAIN_SECONDS)
        await http.cleanup()


async def main(chosen: Settings) -> None:
    """Serve what the cluster says of the service; raises SettingsError if none is named."""
    if not chosen.service:
        raise SettingsError("HEADRACE_SERVICE is not set: give the name of an LLMService")
    await configuration.load()
    async with client.ApiClient() as api:
        source = KubernetesSource(api, (chosen.pod_namespace,))
        await serve(chosen, source.run, by_name(chosen.peers, chosen.pod_ip) if chosen.peers else None)


if __name__ == "__main__":
    launch(main)
