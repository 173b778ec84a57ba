"""The proxy itself: a thread with an HTTP server, which every call of the operator passes.

It speaks plain HTTP on loopback towards the operator, and to the API server with the credentials given.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from .script import Call, Delay, Gone, HalfOpen, Hang, Reset, Rule, Script, Status
from .watch import GONE, BrokenError, Stream

_NOT_PASSED_ON = {"host", "connection", "accept-encoding", "content-length", "transfer-encoding"}
_OUTAGES: dict[str, Rule] = {
    "500": Rule(Status(500)),
    "429": Rule(Status(429, retry_after=1)),
    "hang": Rule(Hang()),
    "half-open": Rule(HalfOpen()),
    "reset": Rule(Reset()),
}
_LONGEST_LINE = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that reached the proxy."""

    call: Call
    at: float  # time.monotonic()


class Proxy:
    """Between the operator and the API server at `url`; entering starts it, leaving ends it.

    `headers` are added to each request on its way to the API server.
    """

    OUTAGES = ("refused", *_OUTAGES)

    def __init__(
        self,
        url: str,
        authority: Path | None = None,
        token: str = "",
        *,
        seed: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.script = Script(seed)
        self.seen: list[Seen] = []
        self.answers: list[tuple[Call, int]] = []  # what the API server itself said, by status
        self._upstream, self._token, self._headers = url, token, dict(headers or {})
        self._tls = ssl.create_default_context(cafile=authority)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._streams: set[Stream] = set()
        self._port = 0

    @property
    def url(self) -> str:
        """Return the address at which the proxy listens."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads through the proxy."""
        name = {"name": "faults"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{**name, "cluster": {"server": self.url}}],
            "users": [{**name, "user": {"token": self._token}}],
            "contexts": [{**name, "context": {"cluster": "faults", "user": "faults"}}],
            "current-context": "faults",
        }
        path.write_text(json.dumps(document))
        return path

    @contextlib.contextmanager
    def rule(self, rule: Rule) -> Iterator[Rule]:
        """Keep the rule in force inside the block, before all others."""
        self.script.rules.insert(0, rule)
        try:
            yield rule
        finally:
            self.script.rules.remove(rule)

    @contextlib.contextmanager
    def outage(self, kind: str) -> Iterator[None]:
        """Cut the API server off inside the block, in one of the ways of `OUTAGES`.

        What hung or was half open stays so afterwards: only a new connection reaches the server again.
        """
        if kind == "refused":
            self._do(self._deaf())
            try:
                yield
            finally:
                self._do(self._listen())
            return
        rule = _OUTAGES[kind]
        with self.rule(Rule(rule.fault)):
            if isinstance(rule.fault, Status | Reset):
                self.cut()
            else:
                self.silence()
            yield

    def silence(self) -> None:
        """Silence every watch that is open: it stays open and brings nothing more."""
        for stream in tuple(self._streams):
            stream.mute = True

    def cut(self) -> None:
        """Break every open connection."""
        self._do(self._abort())

    def calls(self, since: float = 0.0) -> list[Call]:
        """Return the requests that came in after that time."""
        return [seen.call for seen in tuple(self.seen) if seen.at >= since]

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(self._upstream, connector=connector, timeout=timeout)
        app = web.Application(client_max_size=_LONGEST_LINE)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.0)
        await self._runner.setup()
        await self._listen()

    async def _listen(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._site = web.SockSite(self._runner, listener)
        await self._site.start()

    async def _deaf(self) -> None:
        await self._site.stop()
        await self._abort()

    async def _abort(self) -> None:
        server = self._runner.server
        for connection in server.connections if server else ():
            if connection.transport:
                connection.transport.abort()

    async def _stop(self) -> None:
        await self._abort()
        await self._runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        call = Call(request.method, request.path, dict(request.query))
        self.seen.append(Seen(call, time.monotonic()))
        fault = self.script.choose(call)
        match fault:
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Status(code, retry_after):
                return _failure(code, retry_after)
            case Hang():
                await asyncio.Event().wait()
            case Reset(after=False):
                return await _break(request)
            case Gone():
                return web.Response(body=GONE, content_type="application/json")
            case _:
                pass  # those that come with the answer
        body = await request.read()
        async with self._ask(request, body) as answer:
            self.answers.append((call, answer.status))
            if call.watch and answer.status == 200:
                return await self._watch(request, call, answer)
            content = await answer.read()
            if isinstance(fault, Reset):
                return await _break(request)
            return await _answer(request, answer, content, half=isinstance(fault, HalfOpen))

    def _ask(self, request: web.Request, body: bytes) -> Any:
        kept = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        return self._session.request(
            request.method,
            request.rel_url,
            headers={**kept, "Accept-Encoding": "identity", **self._headers},
            data=body or None,
        )

    async def _watch(
        self, request: web.Request, call: Call, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        stream = Stream(call, self.script, response.write)
        self._streams.add(stream)
        try:
            await stream.run(_lines(answer.content))
            await response.write_eof()
        except BrokenError:
            return await _break(request)
        finally:
            self._streams.discard(stream)
        return response


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"


async def _answer(
    request: web.Request, answer: aiohttp.ClientResponse, content: bytes, *, half: bool
) -> web.StreamResponse:
    kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=kept)
    response.content_length = len(content)
    await response.prepare(request)
    await response.write(content[: len(content) // 2] if half else content)
    if half:
        await asyncio.Event().wait()
    await response.write_eof()
    return response


async def _break(request: web.Request) -> web.StreamResponse:
    if request.transport:
        request.transport.abort()
    await asyncio.Event().wait()  # until the broken connection ends this task
    raise AssertionError


def _failure(code: int, retry_after: int | None) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "a fault"}
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.json_response(status, status=code, headers=headers)
