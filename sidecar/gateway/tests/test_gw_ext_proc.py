"""What gateways of others are answered over external processing."""

import json
from random import Random

import grpc
import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from gw_reports import IDLE

from headrace_engine.contracts import GatewayConfig
from headrace_engine.contracts.policy_document import PerRequest, Slo
from headrace_gateway.catalog import Catalog, Service, ServiceKey
from headrace_gateway.headers import DESTINATION_HEADER
from headrace_gateway.pick import ext_proc as door
from headrace_gateway.pick import prompt_reader
from headrace_gateway.pick.ext_proc import ExternalProcessor
from headrace_gateway.pick.picker import Picker
from headrace_gateway.pick.prompt_reader import PromptReader

LIMIT = 100_000
BODY = b'{"model": "chat", "messages": [{"role": "user", "content": "hi"}]}'
WHOLE, PIECES = ProcessingMode.BUFFERED, ProcessingMode.FULL_DUPLEX_STREAMED
ENGINES = ("10.0.0.1", "10.0.0.2")


@pytest.fixture
def picker():
    return Picker(lambda: 0.0, Random(1))


@pytest.fixture
def configure(picker):
    """Makes the service `llm/chat` known, with these settings and engines, beside `llm/other`."""

    def apply(engines=ENGINES, reports=IDLE, **settings):
        chat = Service(GatewayConfig("llm", "chat", ("chat",), "chat", **settings), engines)
        other = Service(GatewayConfig("llm", "other", ("other",), "other"), ("10.0.0.9",))
        picker.set_catalog(Catalog.build([chat, other]))
        for address in engines:
            picker.fleets["llm/chat"].observe(address, reports, 0.0)

    apply()
    return apply


@pytest.fixture
async def ask(picker, configure, monkeypatch):
    """Sends the messages of one request; what comes back, whether the stream then ended by itself."""
    monkeypatch.setattr(prompt_reader, "READ_SECONDS", 60.0)  # on a busy machine
    async with PromptReader() as reader:
        server = grpc.aio.server()
        processor = ExternalProcessor(ServiceKey("llm", "chat"), picker, reader, LIMIT)
        server.add_generic_rpc_handlers((processor.handler(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = external_processor_pb2_grpc.ExternalProcessorStub(channel)

            async def send(*messages):
                return [each async for each in stub.Process(iter(messages))]

            send.processor = processor
            yield send
        await server.stop(0)


def headers(mode=WHOLE, *, ends=False, subset=None, **given):
    """The first message; header names with underscores for hyphens."""
    message = ext_proc.ProcessingRequest()
    for key, value in {":method": "POST", "content-type": "application/json", **given}.items():
        each = message.request_headers.headers.headers.add()
        each.key, each.raw_value = key.replace("_", "-"), value.encode()
    message.request_headers.end_of_stream = ends
    if mode is not None:
        message.protocol_config.request_body_mode = mode
    if subset is not None:
        message.metadata_context.filter_metadata[door.SUBSET].update({door.SUBSET_KEY: subset})
    return message


def piece(body, *, ends=True):
    return ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=body, end_of_stream=ends))


def trailers():
    return ext_proc.ProcessingRequest(request_trailers=ext_proc.HttpTrailers())


def mutation(response):
    kind = response.WhichOneof("response")
    assert kind in {"request_headers", "request_body"}
    return getattr(response, kind).response.header_mutation


def set_by(response):
    return {each.header.key: each.header.raw_value.decode() for each in mutation(response).set_headers}


def chosen(response):
    """The engine, which header and metadata must name alike."""
    host = set_by(response)[DESTINATION_HEADER]
    assert response.dynamic_metadata["envoy.lb"][DESTINATION_HEADER] == host
    return host


def refusal(responses):
    (response,) = responses
    told = response.immediate_response
    return told.status.code, json.loads(told.body)["error"]["code"]


async def test_a_whole_body_is_answered_with_the_engine(ask, picker):
    first, told = await ask(headers(), piece(BODY))
    assert first.WhichOneof("response") == "request_headers"
    assert not first.request_headers.response.header_mutation.set_headers
    assert told.WhichOneof("response") == "request_body"
    address, _, port = chosen(told).partition(":")
    assert port == "8000"
    assert picker.fleets["llm/chat"].endpoints[address].booked_requests == 1


async def test_requests_spread(ask):
    hosts = {chosen((await ask(headers(), piece(BODY)))[1]) for _ in range(2)}
    assert hosts == {f"{address}:8000" for address in ENGINES}


@pytest.mark.parametrize("mode", [PIECES, None], ids=["said", "unsaid"])
async def test_pieces_come_back_after_the_headers(ask, monkeypatch, mode):
    monkeypatch.setattr(door, "PIECE_BYTES", 20)
    told, *back = await ask(headers(mode), piece(BODY[:30], ends=False), piece(BODY[30:]))
    assert told.WhichOneof("response") == "request_headers"
    chosen(told)
    sent = [each.request_body.response.body_mutation.streamed_response for each in back]
    assert b"".join(each.body for each in sent) == BODY
    assert max(len(each.body) for each in sent) <= 20
    assert [each.end_of_stream for each in sent] == [False] * (len(sent) - 1) + [True]


async def test_trailers_end_a_body_in_pieces(ask):
    told, back, last = await ask(headers(PIECES), piece(BODY, ends=False), trailers())
    chosen(told)
    assert not back.request_body.response.body_mutation.streamed_response.end_of_stream
    assert last.WhichOneof("response") == "request_trailers"


@pytest.mark.parametrize("mode", [WHOLE, PIECES, ProcessingMode.NONE, ProcessingMode.STREAMED])
async def test_what_has_no_body_goes_to_who_holds_least(ask, picker, mode):
    busy = picker.fleets["llm/chat"].endpoints[ENGINES[0]]
    busy.requests = 3
    (told,) = await ask(headers(mode, ends=True, **{":method": "GET"}))
    assert chosen(told) == f"{ENGINES[1]}:8000"
    assert picker.fleets["llm/chat"].endpoints[ENGINES[1]].booked_requests == 0


async def test_a_body_that_is_not_shown_is_not_waited_for(ask):
    (told,) = await ask(headers(ProcessingMode.NONE))
    chosen(told)


async def test_what_is_no_json_is_not_read(ask):
    _, told = await ask(headers(content_type="multipart/form-data; boundary=x"), piece(b"--x"))
    chosen(told)


@pytest.mark.parametrize("subset", [["10.0.0.2:8000"], "10.0.0.2:8000, 10.0.0.7:8000"], ids=["list", "text"])
@pytest.mark.parametrize("ends", [False, True])
async def test_only_hosts_of_the_subset_are_chosen(ask, subset, ends):
    for _ in range(3):
        sent = [headers(subset=subset, ends=ends), *([] if ends else [piece(BODY)])]
        assert chosen((await ask(*sent))[-1]) == "10.0.0.2:8000"


@pytest.mark.parametrize("subset", [[], "", ["10.0.0.9:8000"], ["10.0.0.1:9000"]])
async def test_a_subset_without_an_engine_of_the_service_is_refused(ask, subset):
    assert refusal((await ask(headers(subset=subset), piece(BODY)))[1:]) == (503, "no_ready_engine")


async def test_without_an_engine_all_is_refused(ask, configure):
    configure(engines=())
    assert refusal(await ask(headers(PIECES), piece(BODY))) == (503, "no_ready_engine")


async def test_a_service_that_is_gone_is_refused(ask, picker):
    picker.set_catalog(Catalog.build([]))
    assert refusal(await ask(headers(PIECES), piece(BODY))) == (503, "no_ready_engine")


async def test_an_overloaded_service_says_when_to_come_again(ask, configure):
    from dataclasses import replace

    configure(max_queue_ms=1000, reports=replace(IDLE, waiting=9, waiting_prefill_tokens=1_000_000))
    (response,) = await ask(headers(PIECES), piece(BODY))
    told = response.immediate_response
    given = {each.header.key: each.header.raw_value.decode() for each in told.headers.set_headers}
    assert told.status.code == 429
    assert 1 <= int(given["retry-after"]) <= 60
    assert given["content-type"] == "application/json"


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": "chat"}', b"\xff"])
async def test_what_is_no_request_is_refused(ask, body):
    assert refusal(await ask(headers(PIECES), piece(body))) == (400, "invalid_body")


async def test_another_services_model_is_refused(ask):
    body = BODY.replace(b'"chat"', b'"llm/other"')
    assert refusal(await ask(headers(PIECES), piece(body))) == (404, "model_not_found")


async def test_a_body_that_takes_long_is_read_elsewhere(ask):
    messages = [{"role": "user", "content": "hi"}] * (prompt_reader.MOST_OBJECTS + 1)
    told, *_ = await ask(headers(PIECES), piece(json.dumps({"messages": messages}).encode()))
    chosen(told)


async def test_too_large_a_body_is_refused_before_its_end(ask):
    many = [piece(b"x" * (LIMIT // 2), ends=False) for _ in range(3)]
    assert refusal(await ask(headers(PIECES), *many)) == (413, "request_too_large")
    assert ask.processor._held_bytes == 0


async def test_who_sends_much_at_once_is_told_to_wait(ask, monkeypatch):
    monkeypatch.setattr(door, "MOST_BYTES", len(BODY) - 1)
    assert refusal(await ask(headers(PIECES), piece(BODY))) == (429, "overloaded")


async def test_what_clients_must_not_say_is_removed(ask):
    told = (
        await ask(
            headers(
                x_vllm_x="1",
                x_headrace_priority="1",
                x_headrace_service="llm/other",
                x_headrace_ttft_ms="5",
                x_envoy_x="1",
                x_gateway_destination_endpoint="10.0.0.9:1",
                x_mine="1",
            ),
            piece(BODY),
        )
    )[1]
    assert set(mutation(told).remove_headers) == {
        "x-vllm-x",
        "x-headrace-priority",
        "x-headrace-service",
        "x-headrace-ttft-ms",
    }
    assert chosen(told) != "10.0.0.9:1"
    assert "x-request-id" not in set_by(told)


async def test_targets_of_one_request_travel_in_its_id(ask, configure):
    configure(slo=Slo(per_request=PerRequest()))
    told = (await ask(headers(x_request_id="7", x_headrace_ttft_ms="250"), piece(BODY)))[1]
    assert set_by(told)["x-request-id"] == "7~headrace~250~~~~"


async def test_an_empty_body_in_pieces_ends(ask):
    told, last = await ask(headers(PIECES), piece(b""))
    chosen(told)
    assert last.request_body.response.body_mutation.streamed_response.end_of_stream


async def test_a_request_that_is_never_whole_is_not_answered(ask):
    with pytest.raises(grpc.aio.AioRpcError, match="ended before it was whole"):
        await ask(headers(PIECES), piece(BODY, ends=False))
    assert ask.processor._held_bytes == 0


async def test_the_stream_ends_before_the_engine_answers(ask):
    (told,) = await ask(ext_proc.ProcessingRequest(response_headers=ext_proc.HttpHeaders()))
    assert told.WhichOneof("response") == "response_headers"
    # Nothing is left of the stream to be asked on.
    late = ext_proc.ProcessingRequest(response_body=ext_proc.HttpBody(body=b"x"))
    assert len(await ask(headers(), piece(BODY), late)) == 2
