"""Envoy asks, the picker answers: one plain HTTP request per request to an engine.

Envoy's authorization filter sends the whole body and the name of the route that it chose. The answer is 200
with the engine's address in a header, 200 without it where Envoy shall choose by itself, or a complete error
for the client. Envoy takes any 5xx for an answer that did not come and goes on without.
"""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from time import perf_counter
from typing import Literal, TypedDict

import orjson

from headrace_gateway import metrics, names
from headrace_gateway.headers import (
    DESTINATION_HEADER,
    EXCLUDE_HEADER,
    LEAVING_HEADER,
    RESUMED_HEADER,
    ROUTE_HEADER,
)
from headrace_gateway.pick.counting import count
from headrace_gateway.pick.http_server import HttpServer, Request, response
from headrace_gateway.pick.picker import Choice, Picker
from headrace_gateway.pick.prompt_reader import PromptReader, takes_long
from headrace_gateway.pick.reading import MOST_BYTES, read_elsewhere
from headrace_gateway.pick.rebalance import Leaving, is_reason, write_surpluses
from headrace_gateway.replies import STAY, Reply

OVERHEAD_BYTES = 1024  # over the largest body that Envoy lets through
GO_ON = response(200)  # Envoy chooses
WITHOUT_US = response(503)  # likewise
RATHER_ANOTHER = response(200, {"x-envoy-degraded": ""})  # to a check: asked only if nobody else is there

State = Literal["current", "stale", "away"]
_CHECKED: dict[State, bytes] = {"current": GO_ON, "stale": RATHER_ANOTHER, "away": WITHOUT_US}


def server(
    picker: Picker,
    reader: PromptReader,
    state: Callable[[], State],
    leads: Callable[[], bool],
    max_body_bytes: int,
) -> HttpServer:
    """Make the server that answers picks, and Envoy's checks at `names.HEALTH_PATH` and `names.LEADER_PATH`.

    A picker whose `state` is stale, since it has lost the API server, is asked where none is current.
    Relays ask at `names.SURPLUSES_PATH` what engines shall hand over: `[share, reason]` by authority.
    Bodies beyond `MOST_BYTES` at once get a 503, with which Envoy goes on without the picker.
    """

    def answer(request: Request) -> bytes | Awaitable[bytes]:
        if request.path == names.HEALTH_PATH:
            return _CHECKED[state()]
        if request.path == names.LEADER_PATH:
            return GO_ON if leads() else WITHOUT_US
        if request.path == names.SURPLUSES_PATH:
            told = write_surpluses(picker.surpluses())
            return response(200, {"content-type": "application/json"}, told)
        service = request.headers.get(ROUTE_HEADER, "")
        if request.path.endswith(names.COUNT_PATH):
            return _answer(service, lambda: picker.place_unread(service))
        if service in picker.fleets and takes_long(request.body):
            return _answer_later(picker, reader, service, request)
        again = _sent_again(request)
        return _answer(service, lambda: picker.decide(service, request.body, request.headers, **again))

    return HttpServer(answer, max_body_bytes + OVERHEAD_BYTES, MOST_BYTES)


def _answer(service: str, decide: Callable[[], Choice | Reply | None]) -> bytes:
    start = perf_counter()
    told = _tell(service, decide())
    metrics.PICK_SECONDS.observe(perf_counter() - start)
    return told


async def _answer_later(picker: Picker, reader: PromptReader, service: str, request: Request) -> bytes:
    read = await read_elsewhere(reader, service, request.body)
    if request.is_given_up:  # what is booked now would go nowhere
        return WITHOUT_US
    if isinstance(read, Reply):
        return _answer(service, lambda: read)
    again = _sent_again(request)
    return _answer(service, lambda: picker.place(service, read, request.headers, **again))


class _Again(TypedDict, total=False):
    lost_with: list[str]
    leaving: Leaving


def _sent_again(request: Request) -> _Again:
    """Tell which engines were lost with a request that the relay sends again, and which has it if one has."""
    if RESUMED_HEADER not in request.headers:
        return {}
    again: _Again = {"lost_with": request.headers.get(EXCLUDE_HEADER, "").split(",")}
    reason, _, host = request.headers.get(LEAVING_HEADER, "").partition(" ")
    return {**again, "leaving": Leaving(reason, host)} if is_reason(reason) else again


def _tell(service: str, decision: Choice | Reply | None) -> bytes:
    if decision is None:
        return GO_ON
    if decision is not STAY:
        count(service, decision)
    if isinstance(decision, Choice):
        return _send_to(decision.host)
    return _refuse(decision)


@lru_cache(maxsize=1024)
def _send_to(host: str) -> bytes:
    return response(200, {DESTINATION_HEADER: host})


def _refuse(reply: Reply) -> bytes:
    return response(reply.status, reply.headers, orjson.dumps(reply.body))
