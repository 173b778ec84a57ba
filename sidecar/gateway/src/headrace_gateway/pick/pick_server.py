"""Envoy asks, the picker answers: one plain HTTP request per request to an engine.

Envoy's authorization filter sends the whole body and the name of the route that it chose. The answer is 200
with the engine's address in a header, 200 without it where Envoy shall choose by itself, or a complete error
for the client. Envoy takes any 5xx for an answer that did not come and goes on without.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache
from time import perf_counter

import orjson
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from prometheus_client import Counter

from headrace_gateway import metrics, names
from headrace_gateway.headers import DESTINATION_HEADER, ROUTE_HEADER
from headrace_gateway.pick.picker import Choice, Picker, invalid_body
from headrace_gateway.pick.prompt_reader import PromptReader, ReaderBusyError, takes_long
from headrace_gateway.pick.tokens import BadRequestError, Prompt
from headrace_gateway.replies import Reply

KEEP_ALIVE = 7200.0  # seconds; twice Envoy's, so that Envoy closes, and no connection ends as it is used
LONGEST_LINE = 65_536  # bytes; Envoy lets through paths and headers of 60 KiB together
MOST_BYTES = 64 << 20  # of bodies held at once; the picker's memory has room for a few times that
OVERHEAD_BYTES = 1024  # over the largest body that Envoy lets through
BUSY = Reply(429, "overloaded", "the gateway reads other long requests of this service first", retry_after=1)


def server(
    picker: Picker,
    reader: PromptReader,
    healthy: Callable[[], bool],
    leads: Callable[[], bool],
    max_body_bytes: int,
) -> web.Server:
    """Make the server that answers picks, and Envoy's health check at `names.HEALTH_PATH`.

    Bodies beyond `MOST_BYTES` at once get a 503, with which Envoy goes on without the picker; so does every
    request until this picker `leads`.
    """
    loop, limit = asyncio.get_running_loop(), max_body_bytes + OVERHEAD_BYTES
    held = 0

    async def answer(request: web.BaseRequest) -> web.Response:
        nonlocal held
        if request.path == names.HEALTH_PATH:
            return web.Response(status=200 if healthy() else 503)
        if not leads():
            return web.Response(status=503)
        size = limit if request.content_length is None else request.content_length
        if held and held + size > MOST_BYTES:
            return web.Response(status=503)
        held += size
        try:
            return await _answer(picker, reader, request)
        except ConnectionResetError:
            return web.Response(status=503)  # for nobody
        finally:
            held -= size

    def received(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=limit)

    return web.Server(
        answer,
        request_factory=received,
        access_log=None,
        keepalive_timeout=KEEP_ALIVE,
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
    )


async def _answer(picker: Picker, reader: PromptReader, request: web.BaseRequest) -> web.Response:
    body, headers = await request.read(), request.headers
    service = headers.get(ROUTE_HEADER, "")
    prompt: Prompt | Reply | None = None
    if service in picker.fleets and takes_long(body):
        prompt = await _read_elsewhere(reader, service, body)
    if request.transport is None:  # Envoy waits no more: what is booked now would go nowhere
        return web.Response(status=503)
    start = perf_counter()
    if isinstance(prompt, Reply):
        decision: Choice | Reply | None = prompt
    elif prompt is None:
        decision = picker.decide(service, body, headers)
    else:
        decision = picker.place(service, prompt, headers)
    response = _tell(service, decision)
    metrics.PICK_SECONDS.observe(perf_counter() - start)
    return response


async def _read_elsewhere(reader: PromptReader, service: str, body: bytes) -> Prompt | Reply:
    try:
        return await reader.read(service, body)
    except BadRequestError as error:
        return invalid_body(error)
    except ReaderBusyError:
        return BUSY


def _tell(service: str, decision: Choice | Reply | None) -> web.Response:
    if decision is None:
        return web.Response()
    if isinstance(decision, Choice):
        _picks(service, decision.balancer).inc()
        return web.Response(headers={DESTINATION_HEADER: decision.host})
    metrics.REFUSALS.labels(*metrics.service_labels(service), decision.code).inc()
    return _refuse(decision)


def forget(services: Iterable[str]) -> None:
    """Drop what was counted of services that are gone."""
    for service in services:
        metrics.forget(service)
        _picks.cache_clear()


@lru_cache(maxsize=1024)
def _picks(service: str, balancer: str) -> Counter:
    return metrics.PICKS.labels(*metrics.service_labels(service), balancer)


def _refuse(reply: Reply) -> web.Response:
    headers = {"content-type": "application/json"}
    if reply.retry_after is not None:
        headers["retry-after"] = str(reply.retry_after)
    return web.Response(status=reply.status, headers=headers, body=orjson.dumps(reply.body))
