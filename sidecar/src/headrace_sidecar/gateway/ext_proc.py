"""Envoy's external processor: one short gRPC stream per request, one message in, one out.

In comes the whole request body and the name of the route that Envoy chose, out goes dynamic metadata with the
engine's address, or a complete error reply. The stream ends with the answer, so memory is held only for requests
that are being decided.
"""

from collections.abc import AsyncIterator
from time import perf_counter

import grpc
import orjson
from envoy.service.ext_proc.v3 import external_processor_pb2, external_processor_pb2_grpc

from headrace_sidecar.gateway import metrics, names
from headrace_sidecar.gateway.picker import Choice, Picker
from headrace_sidecar.gateway.replies import DETAILS_PREFIX, Reply

Request = external_processor_pb2.ProcessingRequest
Response = external_processor_pb2.ProcessingResponse


class ExternalProcessor(external_processor_pb2_grpc.ExternalProcessorServicer):
    """The gRPC service."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    async def Process(  # noqa: N802  (gRPC's name)
        self, requests: AsyncIterator[Request], _context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Response]:
        """Answer one request's message."""
        async for request in requests:
            if request.WhichOneof("request") == "request_body":
                yield self._answer(request)
                return
            # Only an Envoy that is configured otherwise sends more than the body; let it pass untouched.
            yield Response(request_headers={})

    def _answer(self, request: Request) -> Response:
        start = perf_counter()
        service = _route_name(request)
        decision = self._picker.decide(service, request.request_body.body)
        if isinstance(decision, Choice):
            metrics.PICKS.labels(service, decision.balancer).inc()
            response = _go_to(decision.host)
        else:
            metrics.REFUSALS.labels(service, decision.code).inc()
            response = _refuse(decision)
        metrics.PICK_SECONDS.observe(perf_counter() - start)
        return response


def _route_name(request: Request) -> str:
    attributes = request.attributes.get(names.EXT_PROC)
    return attributes.fields[names.ROUTE_ATTRIBUTE].string_value if attributes else ""


def _go_to(host: str) -> Response:
    response = Response(request_body={})
    response.dynamic_metadata.get_or_create_struct(names.PICK_METADATA)[names.PICK_KEY] = host
    return response


def _refuse(reply: Reply) -> Response:
    headers = [("content-type", "application/json")]
    if reply.retry_after is not None:
        headers.append(("retry-after", str(reply.retry_after)))
    return Response(
        immediate_response={
            "status": {"code": reply.status},
            "headers": {"set_headers": [{"header": {"key": k, "raw_value": v.encode()}} for k, v in headers]},
            "body": orjson.dumps(reply.body),
            "details": DETAILS_PREFIX + reply.code,
        }
    )
