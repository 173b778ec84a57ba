"""Gateways of others ask for a service's engine, by the Endpoint Picker Protocol of Gateway API's Inference
Extension (v1): Envoy's external processing, one stream per request.

The answer is the engine's address in a header and, the same, in dynamic metadata; or a complete error for the
client. The gateway may say among which engines to choose. It sends the body whole (BUFFERED), or in pieces
that go on to the engine only when they come back (FULL_DUPLEX_STREAMED, what the protocol demands): then the
headers are answered last, when the body has told where to. With that the stream ends, so that no answer of an
engine comes through here, or breaks when this process ends. The last message and the stream's end leave in
one write: Envoy sends here what an engine answers while the stream is open, and loses what no message brings
back.

Who may call the service, on which paths and how often is for the gateway that asks. What clients must not say
to engines is removed here too.
"""

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import grpc
import orjson
from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    ImmediateResponse,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
    TrailersResponse,
)
from envoy.type.v3.http_status_pb2 import HttpStatus
from google.protobuf.struct_pb2 import Struct, Value

from headrace_engine.contracts import request_overrides
from headrace_gateway import metrics, replies
from headrace_gateway.catalog import ServiceKey
from headrace_gateway.headers import (
    DESTINATION_HEADER,
    OVERRIDE_BYTES,
    OVERRIDE_HEADERS,
    SERVICE_HEADER,
    STRIPPED_PREFIXES,
)
from headrace_gateway.pick.counting import count
from headrace_gateway.pick.picker import Choice, Picker
from headrace_gateway.pick.prompt_reader import PromptReader, takes_long
from headrace_gateway.pick.reading import BUSY, MOST_BYTES, read_elsewhere
from headrace_gateway.replies import Reply

PIECE_BYTES = 62_000  # of a body that goes back: less than a window of HTTP/2 has by default
METADATA = "envoy.lb"  # namespace of what is chosen, and with its key
SUBSET = "envoy.lb.subset_hint"  # of what may be chosen
SUBSET_KEY = f"{DESTINATION_HEADER}-subset"
REQUEST_ID = "x-request-id"
JSON = "application/json"
# The gateway's own, and what is overwritten.
KEPT_PREFIXES = ("x-envoy-", DESTINATION_HEADER)
REMOVED_PREFIXES = tuple(prefix for prefix in STRIPPED_PREFIXES if prefix not in KEPT_PREFIXES)
REMOVED = frozenset({*OVERRIDE_HEADERS, SERVICE_HEADER})

GRPC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"

WHOLE = frozenset({ProcessingMode.BUFFERED, ProcessingMode.BUFFERED_PARTIAL})
IN_PIECES = ProcessingMode.FULL_DUPLEX_STREAMED


class ExternalProcessor:
    """Answers for the service `key`, whatever a request names.

    Bodies over `max_body_bytes` get 413; those beyond `MOST_BYTES` of all that are held, 429.
    """

    def __init__(self, key: ServiceKey, picker: Picker, reader: PromptReader, max_body_bytes: int) -> None:
        self._service = str(key)
        self._picker = picker
        self._reader = reader
        self._max_body_bytes = max_body_bytes
        self._held_bytes = 0

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what a gRPC server is given to serve this.

        On the wire it is the protocol's bidirectional stream. To the server it is a call with one response:
        those alone go out together with the stream's end.
        """
        process = grpc.stream_unary_rpc_method_handler(self._process, ProcessingRequest.FromString)
        return grpc.method_handlers_generic_handler(GRPC_SERVICE, {"Process": process})

    async def _process(
        self, requests: AsyncIterator[ProcessingRequest], context: grpc.aio.ServicerContext
    ) -> bytes:
        """Answer one request's stream, until the gateway knows all; returns the last message."""
        asked = Asked()
        try:
            async for message in requests:
                told: list[bytes] = [each.SerializeToString() for each in await self._answer(asked, message)]
                last = told.pop() if asked.is_answered else None
                for response in told:
                    await context.write(response)
                if last is not None:
                    return last
            await context.abort(grpc.StatusCode.CANCELLED, "the request ended before it was whole")
            raise AssertionError("abort returned")
        finally:
            self._held_bytes -= asked.size

    async def _answer(self, asked: "Asked", message: ProcessingRequest) -> list[ProcessingResponse]:
        kind = message.WhichOneof("request")
        if kind == "request_headers":
            asked.take_headers(message)
            if message.request_headers.end_of_stream or not (asked.is_whole or asked.in_pieces):
                return self._tell(asked, self._picker.place_unread(self._service, asked.among))
            # The body comes only now, or has to come back before the headers go on.
            return [ProcessingResponse(request_headers=HeadersResponse())] if asked.is_whole else []
        if kind == "request_body":
            too_much = self._hold(asked, message.request_body.body)
            if too_much is not None:
                return self._tell(asked, too_much)
            if message.request_body.end_of_stream or asked.is_whole:
                return self._tell(asked, await self._decide(asked))
            return []
        if kind == "request_trailers":
            asked.has_trailers = True
            return self._tell(asked, await self._decide(asked))
        asked.is_answered = True  # by the gateway itself, for no engine has the request yet
        return [ProcessingResponse(response_headers=HeadersResponse())]

    def _hold(self, asked: "Asked", piece: bytes) -> Reply | None:
        """Keep a piece of the body; returns what is to be answered if that is too much."""
        asked.pieces.append(piece)
        asked.size += len(piece)
        self._held_bytes += len(piece)
        if asked.size > self._max_body_bytes:
            return replies.too_large(self._max_body_bytes)
        return BUSY if self._held_bytes > MOST_BYTES else None

    async def _decide(self, asked: "Asked") -> Choice | Reply | None:
        body, service, among = asked.body, self._service, asked.among
        if not (body and asked.is_json):
            return self._picker.place_unread(service, among)
        if service in self._picker.fleets and takes_long(body):
            read = await read_elsewhere(self._reader, service, body)
            if isinstance(read, Reply):
                return read
            with metrics.PICK_SECONDS.time():
                return self._picker.place(service, read, asked.headers, among)
        with metrics.PICK_SECONDS.time():
            return self._picker.decide(service, body, asked.headers, among)

    def _tell(self, asked: "Asked", decision: Choice | Reply | None) -> list[ProcessingResponse]:
        asked.is_answered = True
        decision = decision or replies.no_engine(self._service)
        count(self._service, decision)
        if isinstance(decision, Reply):
            return [_refuse(decision)]
        common = CommonResponse(header_mutation=self._mutate_headers(asked, decision))
        if asked.is_whole and asked.pieces:
            told = ProcessingResponse(request_body=BodyResponse(response=common))
        else:
            told = ProcessingResponse(request_headers=HeadersResponse(response=common))
        told.dynamic_metadata.CopyFrom(_metadata(decision.host))
        return [told, *(_give_back(asked) if asked.in_pieces else ())]

    def _mutate_headers(self, asked: "Asked", choice: Choice) -> HeaderMutation:
        headers = {DESTINATION_HEADER: choice.host}
        if self._picker.fleets[self._service].config.slo.per_request is not None:
            values = [asked.headers.get(name, "")[:OVERRIDE_BYTES] for name in OVERRIDE_HEADERS]
            headers[REQUEST_ID] = request_overrides.write_request_id(
                asked.headers.get(REQUEST_ID, ""), values
            )
        removed = [name for name in asked.headers if name in REMOVED or name.startswith(REMOVED_PREFIXES)]
        return HeaderMutation(set_headers=_set(headers.items()), remove_headers=removed)


@dataclass(slots=True)
class Asked:
    """One request, as far as it is known; see the module for `is_whole` and `in_pieces`."""

    headers: dict[str, str] = field(default_factory=dict)
    among: Collection[str] | None = None  # the hosts that it may go to; None: any
    is_whole: bool = False  # the body comes in one message
    in_pieces: bool = False
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0  # bytes of them
    has_trailers: bool = False
    is_answered: bool = False

    def take_headers(self, message: ProcessingRequest) -> None:
        """Read the first message; who does not say how it sends bodies does so as the protocol has it."""
        self.headers = {
            each.key: each.raw_value.decode(errors="replace") or each.value
            for each in message.request_headers.headers.headers
        }
        mode = message.protocol_config.request_body_mode if message.HasField("protocol_config") else IN_PIECES
        self.is_whole, self.in_pieces = mode in WHOLE, mode == IN_PIECES
        given = message.metadata_context.filter_metadata
        if SUBSET in given and SUBSET_KEY in given[SUBSET].fields:
            self.among = _hosts(given[SUBSET].fields[SUBSET_KEY])

    @property
    def is_json(self) -> bool:
        """Whether the body is said to be JSON, or nothing is said."""
        return self.headers.get("content-type", JSON).partition(";")[0].strip().lower() == JSON

    @property
    def body(self) -> bytes:
        """The body so far."""
        return b"".join(self.pieces)


def _hosts(subset: Value) -> frozenset[str]:
    """Read the hosts that may be chosen: a list, or text with commas."""
    if subset.WhichOneof("kind") == "list_value":
        return frozenset(each.string_value for each in subset.list_value.values)
    return frozenset(host.strip() for host in subset.string_value.split(",") if host.strip())


def _give_back(asked: Asked) -> Iterable[ProcessingResponse]:
    """Let the body go on as it came, and the trailers."""
    body = asked.body
    # A body that has been announced ends, even if nothing was in it.
    length = max(len(body), 1) if asked.pieces else 0
    for start in range(0, length, PIECE_BYTES):
        is_last = start + PIECE_BYTES >= len(body)
        piece = StreamedBodyResponse(
            body=body[start : start + PIECE_BYTES], end_of_stream=is_last and not asked.has_trailers
        )
        mutation = BodyMutation(streamed_response=piece)
        yield ProcessingResponse(request_body=BodyResponse(response=CommonResponse(body_mutation=mutation)))
    if asked.has_trailers:
        yield ProcessingResponse(request_trailers=TrailersResponse())


def _refuse(reply: Reply) -> ProcessingResponse:
    return ProcessingResponse(
        immediate_response=ImmediateResponse(
            status=HttpStatus(code=reply.status),
            headers=HeaderMutation(set_headers=_set(reply.headers.items())),
            body=orjson.dumps(reply.body),
            details=reply.code,
        )
    )


def _set(headers: Iterable[tuple[str, str]]) -> list[HeaderValueOption]:
    overwrite = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return [
        HeaderValueOption(header=HeaderValue(key=key, raw_value=value.encode()), append_action=overwrite)
        for key, value in headers
    ]


@lru_cache(maxsize=1024)
def _metadata(host: str) -> Struct:
    made = Struct()
    made[METADATA] = {DESTINATION_HEADER: host}
    return made
