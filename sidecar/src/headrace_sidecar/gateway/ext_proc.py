"""Envoy's external processor: one short gRPC stream per request.

In come the name of the route that Envoy chose, with the headers, then the whole body. Out goes dynamic
metadata with the engine's address, or a complete error reply. The stream ends with that answer, so memory
is held only for requests that are being decided.
"""

from collections.abc import AsyncIterator
from time import perf_counter

import grpc
import orjson
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

from headrace_sidecar.gateway import metrics, names
from headrace_sidecar.gateway.picker import Choice, Picker
from headrace_sidecar.gateway.replies import DETAILS_PREFIX, Reply

GO_ON = ProcessingResponse(request_headers={})


class ExternalProcessor(external_processor_pb2_grpc.ExternalProcessorServicer):
    """The gRPC service."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    async def Process(  # noqa: N802  (gRPC's name)
        self, requests: AsyncIterator[ProcessingRequest], _context: grpc.aio.ServicerContext
    ) -> AsyncIterator[ProcessingResponse]:
        """Decide one request."""
        service = ""
        async for request in requests:
            if request.WhichOneof("request") == "request_headers":
                service = _route_name(request)
                if not request.request_headers.end_of_stream:
                    yield GO_ON
                    continue
            yield self._answer(service, request.request_body.body)
            return

    def _answer(self, service: str, body: bytes) -> ProcessingResponse:
        start = perf_counter()
        decision = self._picker.decide(service, body)
        if decision is None:
            response = ProcessingResponse(request_body={})
        elif isinstance(decision, Choice):
            metrics.PICKS.labels(service, decision.balancer).inc()
            response = _go_to(decision.host)
        else:
            metrics.REFUSALS.labels(service, decision.code).inc()
            response = _refuse(decision)
        metrics.PICK_SECONDS.observe(perf_counter() - start)
        return response


def _route_name(request: ProcessingRequest) -> str:
    attributes = request.attributes.get(names.EXT_PROC)
    return attributes.fields[names.ROUTE_ATTRIBUTE].string_value if attributes else ""


def _go_to(host: str) -> ProcessingResponse:
    response = ProcessingResponse(request_body={})
    response.dynamic_metadata.get_or_create_struct(names.PICK_METADATA)[names.PICK_KEY] = host
    return response


def _refuse(reply: Reply) -> ProcessingResponse:
    headers = [("content-type", "application/json")]
    if reply.retry_after is not None:
        headers.append(("retry-after", str(reply.retry_after)))
    return ProcessingResponse(
        immediate_response={
            "status": {"code": reply.status},
            "headers": {"set_headers": [{"header": {"key": k, "raw_value": v.encode()}} for k, v in headers]},
            "body": orjson.dumps(reply.body),
            "details": DETAILS_PREFIX + reply.code,
        }
    )
