"""A fake engine and its sidecar on loopback: answers like vLLM, streams load reports like the sidecar."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from aiohttp import web
from gw_reports import IDLE

from headrace_engine.contracts import LoadReport, encode


@dataclass
class Engine:
    """One fake engine with its fake sidecar; `report` may be changed by the test at any time."""

    address: str
    port: int
    sidecar_port: int
    report: LoadReport = IDLE
    healthy: bool = True  # as vLLM's /health says
    silent: bool = False  # the sidecar accepts no stream
    served: list[dict] = field(default_factory=list)  # headers, path and size of each request
    heard: Callable[[dict], None] = lambda _body: None  # is given each request's body
    aborted: int = 0
    events: int = 20  # of a stream that does not say `max_tokens`
    gap: float = 0.02
    over: asyncio.Event | None = None  # streams go on until it is set, however many events that takes
    turns: asyncio.Semaphore | None = None  # an event, or a relayed stream, is sent for each release
    runners: list[web.AppRunner] = field(default_factory=list)

    def load(self, **numbers):
        """Change what the sidecar reports."""
        self.report = replace(self.report, **numbers)

    async def start(self):
        engine, sidecar = web.Application(client_max_size=64 << 20), web.Application()
        engine.router.add_get("/health", self._health)
        engine.router.add_route("*", "/{path:.*}", self._answer)
        sidecar.router.add_get("/load/stream", self._load)
        for app, port in ((engine, self.port), (sidecar, self.sidecar_port)):
            runner = web.AppRunner(
                app,
                access_log=None,
                handler_cancellation=True,
                shutdown_timeout=0.1,
                max_line_size=1 << 16,
                max_field_size=1 << 16,
            )
            await runner.setup()
            await web.TCPSite(runner, self.address, port).start()
            self.runners.append(runner)
        return self

    async def stop(self):
        for runner in self.runners:
            await runner.cleanup()
        self.runners.clear()

    async def _health(self, _request):
        return web.Response(status=200 if self.healthy else 503)

    async def _answer(self, request):
        body = await request.read()
        self.served.append({"headers": dict(request.headers), "path": request.path_qs, "bytes": len(body)})
        asked = json.loads(body)
        self.heard(asked)
        if asked.get("drop"):
            request.transport.abort()
        status = asked.get("answer_status", 200)
        if not asked.get("stream"):
            return web.json_response({"engine": self.address}, status=status)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        tell = self._tell_tokens if asked.get("return_token_ids") else self._tell_events
        try:
            await tell(asked, response)
            await response.write(b"data: [DONE]\n\n")
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise
        return response

    async def _tell_events(self, asked, response):
        more = partial(self._more, asked.get("max_tokens", self.events))
        for number in itertools.takewhile(more, itertools.count()):
            if self.turns is not None:
                await self.turns.acquire()
            await response.write(b'data: {"engine": "%s", "n": %d}\n\n' % (self.address.encode(), number))
            await asyncio.sleep(self.gap)

    async def _tell_tokens(self, asked, response):
        """Stream `max_tokens` tokens, 100 and on, from the first one, as an engine that resumes does.

        The prompt's last words may say how the engine is lost: `lose AT ADDRESS`, or anywhere `lose AT any`;
        or where it loses the request's KV: `preempt AT any`, and hands the request back if the relay asks so.
        """
        arguments = asked.get("vllm_xargs") or {}
        had = len(arguments.get("headrace_resume_ids", ()))
        *_, end, at, where = ["", "", "", *asked["messages"][-1]["content"].split()]
        ends_at = int(at) if end in {"lose", "preempt"} and where in {"any", self.address} else -1
        body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": time.time_ns()}

        async def tell(delta, **more):
            choice = {"index": 0, "delta": delta, "finish_reason": None, **more}
            whole = {**body, "model": "tiny", "choices": [choice]}
            await response.write(b"data: " + json.dumps(whole, separators=(",", ":")).encode() + b"\n\n")

        if self.turns is not None:
            await self.turns.acquire()
        body["prompt_token_ids"] = [1, 2]
        await tell({"role": "assistant", "content": ""})
        del body["prompt_token_ids"]
        for number in range(asked["max_tokens"]):
            if number == ends_at and end == "lose":
                response._req.transport.abort()
                await asyncio.sleep(60)  # until it is noticed
            if number == ends_at and had < ends_at and arguments.get("headrace_hand_back"):
                await tell({}, finish_reason="abort", stop_reason="headrace_handed_back")
                return
            finish = "length" if number == asked["max_tokens"] - 1 else None
            await tell({"content": f"<{100 + number}>"}, finish_reason=finish, token_ids=[100 + number])
            if number >= had:
                await asyncio.sleep(self.gap)

    def _more(self, events, number):
        return number < events if self.over is None else not self.over.is_set()

    async def _load(self, request):
        if self.silent:
            raise web.HTTPServiceUnavailable
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            with contextlib.suppress(ConnectionError):
                await response.write(
                    json.dumps(encode(replace(self.report, time=time.time()))).encode() + b"\n"
                )
            await asyncio.sleep(0.1)
