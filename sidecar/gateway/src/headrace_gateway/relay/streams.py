"""Hands streams from engines to clients, and has another engine go on where one is lost, or to be left.

Envoy sends streams here, and gets them back at a listener of its own for this process, where the picker
chooses the engine: so all that Envoy knows of engines holds for each try. What comes is handed on at once,
as fast as the client takes it. A client that leaves ends its request at the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from random import Random
from time import monotonic, time

import orjson
from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    UnixConnector,
    web,
)
from multidict import CIMultiDict

from headrace_engine.contracts.resume_arguments import Resumption
from headrace_gateway import names
from headrace_gateway.headers import (
    ENGINE_HEADER,
    EXCLUDE_HEADER,
    LEAVING_HEADER,
    LOST_HEADER,
    RESUMED_HEADER,
    REVISION_HEADER,
    ROUTE_HEADER,
)
from headrace_gateway.names import MESSAGES_PATH, service_labels
from headrace_gateway.pick.line import MOST_WAIT
from headrace_gateway.pick.rebalance import (
    STEPPED_BACK,
    TERMINATING,
    Leaving,
    Progress,
    Reason,
    Surplus,
    read_surpluses,
)
from headrace_gateway.relay import relay_metrics
from headrace_gateway.relay.journal import Journal, Passage, ending, error_event
from headrace_gateway.relay.limits import Held
from headrace_gateway.relay.lines import Lines
from headrace_gateway.relay.moves import Moves
from headrace_gateway.relay.passed_headers import passed_on
from headrace_gateway.relay.question import Question, Unread
from headrace_gateway.replies import STAY, Reply

log = logging.getLogger(__name__)

MOST_LOST = 2  # engines on one request: what ended two of them is not tried on a third
PATIENCE = 10.0  # seconds without any engine that takes a request up again
PAUSE = 0.25  # seconds between tries
CONNECT_SECONDS = 2.0
MOST_TOLD = 300  # bytes of a refusal
KEEP_ALIVE = 30.0  # seconds of an idle connection to Envoy, which keeps it longer
OK = 200

_SOON = ClientTimeout(total=2.0)

Sign = Callable[[bytes], bytes]


class LostError(Exception):
    """An engine was lost; the message says how."""


class OverError(Exception):
    """The stream can't go on; the message is for the client."""


class LeftError(Exception):
    """The client has left."""


class Relay:
    """All streams' way to Envoy, which listens for this process at the socket `engines`.

    `sign` raises OSError or ValueError where there is no key to sign with.
    """

    def __init__(self, engines: str, sign: Sign, held: Held) -> None:
        self.sign = sign
        self.session = ClientSession(
            connector=UnixConnector(engines, limit=0, keepalive_timeout=KEEP_ALIVE),
            timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            auto_decompress=False,
            skip_auto_headers=("user-agent", "accept", "accept-encoding", "content-type"),
        )
        self.moves = Moves(Random())  # noqa: S311  (no secret)
        self.lines = Lines()
        self._held = held

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        with relay_metrics.OPEN.track_inprogress(), self._held.keep(request.content_length) as is_held:
            question: Question | Unread = (
                Question(request.path, await request.content.read()) if is_held else Unread(request.content)
            )
            relay_metrics.STREAMS.labels("no" if question.unresumable else "yes").inc()
            return await _Stream(self, request, question).run()

    async def surpluses(self) -> dict[str, Surplus]:
        """Ask a picker what engines shall hand over, by their authorities; empty if none tells."""
        try:
            async with self.session.get("http://engines" + names.SURPLUSES_PATH, timeout=_SOON) as answer:
                return read_surpluses(await answer.read()) if answer.status == OK else {}
        except (ClientError, TimeoutError, ValueError) as error:
            log.debug("nobody tells which streams shall move: %r", error)
            return {}


class _Stream:
    """One client's stream, over as many engines as it takes."""

    def __init__(self, relay: Relay, request: web.Request, question: Question | Unread) -> None:
        self._relay = relay
        self._request = request
        self._question = question
        self._service = request.headers.get(ROUTE_HEADER, "")
        self._journal = Journal(wants_ids=question.wants_ids)
        self._lost: list[str] = []  # engines
        self._unlike: list[str] = []  # engines of another revision
        self._revision = ""  # of the engine that began to answer
        self._stayed_with = 0  # tokens that the client had when it came to its engine, or was left there
        self._heard_at = 0.0  # when that was, or its engine told something; monotonic clock, as `_paused_at`
        self._paused_at = 0.0  # when its engine was lost or left; 0 once the client has more of the answer
        self._arrival = time()
        self._first_token = self._last_token = 0.0  # when it was delivered; 0 if none was
        self._response = web.StreamResponse()

    async def run(self) -> web.StreamResponse:
        """Answer from one engine after the other, until the answer is whole or can't be."""
        labels = service_labels(self._service)
        try:
            while not await self._from_one_engine():
                relay_metrics.ENGINES_LOST.labels(*labels).inc()
        except OverError as error:
            relay_metrics.FAILED.labels(*labels).inc()
            await self._fail(str(error))
        except LeftError:
            pass
        else:
            if self._lost:
                relay_metrics.RESUMED.labels(*labels).inc()
        with contextlib.suppress(ConnectionError):
            await self._response.write_eof()
        return self._response

    async def _from_one_engine(self) -> bool:
        """Hand on what an engine answers; whether that was all, False: the engine was lost.

        Raises OverError, and LeftError.
        """
        engine = ""
        try:
            answer: ClientResponse | None = await self._ask()
            while answer is not None:
                async with answer:
                    engine = answer.headers.get(ENGINE_HEADER, "")
                    answer = await self._hand_on(answer, engine)
        except (LostError, ClientError, TimeoutError) as error:
            await self._note_lost(engine, str(error) or repr(error))
            return self._journal.is_finished
        return True

    async def _ask(self, leaving: Leaving | None = None) -> ClientResponse:
        """Ask for the answer, or for its rest, until there is an engine that takes the request.

        Raises OverError if there is none for too long, or at once where its engine still answers (`leaving`).
        """
        try:
            body = self._question.after(
                self._resumption() if self._lost or leaving else None, self._service, self._relay.sign
            )
        except (OSError, ValueError) as error:
            log.warning("the gateway's key can't be used: %s", error)
            raise OverError("the gateway has no key with which another engine would go on") from None
        url = "http://engines" + self._request.path_qs
        deadline = monotonic() + (0 if leaving else PATIENCE)
        while True:
            answer = await self._relay.session.post(url, data=body, headers=self._headers(leaving))
            if not (self._lost or leaving) or self._may_go_on(answer, leaving):
                return answer
            answer.close()
            if monotonic() > deadline:
                raise OverError("no other engine is ready")
            await asyncio.sleep(PAUSE)

    async def _ask_another(self, leaving: Leaving) -> ClientResponse | None:
        """Ask for the rest from another engine; None if the one that could still give it had better do so."""
        if not (self._journal.is_counted and self._revision):
            return None
        began = monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._ask(leaving)
        except (OverError, ClientError, TimeoutError):
            return None
        is_other = answer.headers.get(ENGINE_HEADER) != leaving.host  # Envoy may choose it without a picker
        if answer.status != OK or LOST_HEADER in answer.headers or not is_other:
            answer.close()
            return None
        self._paused_at = self._paused_at or began
        relay_metrics.MOVED.labels(*service_labels(self._service), leaving.reason).inc()
        return answer

    async def _find_room(self, engine: str) -> ClientResponse:
        """Ask for the rest of an answer that `engine` has handed back, until an engine has room for it.

        Raises OverError if none is ready for too long.
        """
        told_at = monotonic()
        self._paused_at = self._paused_at or told_at

        async def ask(waited: float) -> ClientResponse | None:
            nonlocal told_at
            anywhere = waited > MOST_WAIT and self._revision
            try:
                answer = await self._ask(Leaving(STEPPED_BACK, "" if anywhere else engine))
            except (OverError, ClientError, TimeoutError) as error:
                if monotonic() > told_at + PATIENCE:
                    raise OverError(str(error) or repr(error)) from None
                return None
            if answer.status != STAY.status:
                return answer
            answer.close()
            told_at = monotonic()
            return None

        labels, tokens = service_labels(self._service), len(self._journal.token_ids)
        with relay_metrics.WAITING.labels(*labels).track_inprogress():
            answer = await self._relay.lines.ask_in_turn(self._service, tokens, ask)
        relay_metrics.MOVED.labels(*labels, STEPPED_BACK).inc()
        return answer

    def _resumption(self) -> Resumption:
        return Resumption(tuple(self._journal.token_ids), self._arrival, self._first_token, self._last_token)

    def _headers(self, leaving: Leaving | None) -> CIMultiDict[str]:
        headers = passed_on(self._request.headers)
        if self._lost or leaving:
            without = [*self._lost, *self._unlike]
            if leaving and leaving.reason != STEPPED_BACK:
                without.append(leaving.host)
            headers[RESUMED_HEADER] = "1"
            headers[EXCLUDE_HEADER] = ",".join(filter(None, without))
        if leaving and leaving.host and leaving.reason != TERMINATING.reason:
            headers[LEAVING_HEADER] = f"{leaving.reason} {leaving.host}"
        return headers

    def _may_go_on(self, answer: ClientResponse, leaving: Leaving | None) -> bool:
        """Tell whether there is an engine, and its pod like that of the one that began.

        Raises OverError if one that is not comes again.
        """
        if LOST_HEADER in answer.headers:
            return answer.headers[LOST_HEADER] != names.NO_ENGINE
        if leaving and not self._revision:
            return answer.headers.get(ENGINE_HEADER, leaving.host) == leaving.host
        is_like = answer.headers.get(REVISION_HEADER, "") == self._revision
        if is_like or answer.status != OK or not self._response.prepared:
            return True
        engine = answer.headers.get(ENGINE_HEADER, "")
        if engine in self._unlike:
            raise OverError(
                "the engines that are ready have another pod template, and may have another model"
            )
        self._unlike.append(engine)
        return False

    async def _hand_on(self, answer: ClientResponse, engine: str) -> ClientResponse | None:
        """Hand on an answer, whole or up to where another engine goes on, whose answer it returns.

        Raises LostError if a stream that could go on elsewhere ends early.
        """
        if answer.headers.get(LOST_HEADER) == names.ENGINE_LOST:
            raise LostError("it was lost before it answered")
        if not self._response.prepared:
            self._revision = answer.headers.get(REVISION_HEADER, "")
            await self._begin(answer.status, passed_on(answer.headers))
        elif answer.status != OK:
            told = (await answer.content.read(MOST_TOLD)).decode(errors="replace")
            raise OverError(f"another engine refused to go on: {told}")
        if self._question.unresumable or answer.content_type != "text/event-stream":
            async for data in answer.content.iter_any():
                await self._write(data)
            return None
        passage = Passage(self._journal)
        self._note_stay()
        while reason := await self._pass(answer, passage, engine):
            if reason == STEPPED_BACK:
                return await self._find_room(engine)
            if another := await self._ask_another(Leaving(reason, engine)):
                return another
            self._note_stay()
        if not self._journal.is_done:
            raise LostError("its answer ended early")
        return None

    async def _pass(self, answer: ClientResponse, passage: Passage, engine: str) -> Reason | None:
        """Hand on what comes until all has, or the stream could move; then tell why. Raises LostError."""
        reasons: list[Reason] = []

        def move(reason: Reason) -> None:
            reasons.append(reason)
            stay.reschedule(0)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as stay:
                with self._relay.moves.on(engine, move, self._progress):
                    async for data in answer.content.iter_any():
                        if new := passage.take(data):
                            await self._write(new)
                            self._note_delivery()
                        if passage.failure:
                            raise LostError(passage.failure)
                        if passage.is_handed_back:
                            return STEPPED_BACK
        return reasons[-1] if stay.expired() else None

    def _progress(self) -> Progress:
        tokens = len(self._journal.token_ids)
        prompt = self._journal.prompt_tokens or self._question.prompt_tokens
        return Progress(prompt + tokens, tokens - self._stayed_with, self._heard_at)

    def _note_stay(self) -> None:
        self._stayed_with, self._heard_at = len(self._journal.token_ids), monotonic()

    def _note_delivery(self) -> None:
        self._heard_at = monotonic()
        if self._journal.token_ids:
            self._last_token = time()
            self._first_token = self._first_token or self._last_token
        if self._paused_at:
            relay_metrics.PAUSE_SECONDS.observe(self._heard_at - self._paused_at)
            self._paused_at = 0.0

    async def _note_lost(self, engine: str, problem: str) -> None:
        """Note that an engine was lost, and send what is left to send if the client has all tokens.

        Raises OverError if the stream can't go on elsewhere, or has cost enough engines.
        """
        name = self._request.headers.get("x-request-id", "")
        log.info("request %s lost its engine %s: %s", name, engine or "(unknown)", problem)
        if self._journal.is_finished:
            await self._write(ending(self._journal, with_usage=self._question.wants_usage))
            return
        self._lost.append(engine)
        self._paused_at = self._paused_at or monotonic()
        if self._question.unresumable:
            raise OverError(self._question.unresumable)
        if not self._journal.is_counted:
            raise OverError("it tells no token ids")
        if self._response.prepared and not self._revision:
            raise OverError("nobody knows which other engines have its model")
        if len(self._lost) >= MOST_LOST:
            raise OverError(f"{len(self._lost)} engines were lost with it, the last so: {problem}")

    async def _fail(self, problem: str) -> None:
        """Tell the client in its answer, or in the stream, which goes on no further."""
        reply = Reply(502, "engine_lost", f"the engine was lost, and the answer can't go on: {problem}")
        with contextlib.suppress(LeftError):
            if self._response.prepared:
                await self._write(error_event(reply.body, named=MESSAGES_PATH in self._request.path))
            else:
                await self._begin(reply.status, reply.headers)
                await self._write(orjson.dumps(reply.body))

    async def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._response.set_status(status)
        self._response.headers.update(headers)
        await self._response.prepare(self._request)

    async def _write(self, data: bytes) -> None:
        try:
            await self._response.write(data)
        except ConnectionError:
            raise LeftError from None
