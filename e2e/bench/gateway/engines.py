"""The engines' process: `python -m e2e.bench.gateway.engines KIND PORT SIDECAR_PORT ADDRESS...`.

One engine and its sidecar per address. `instant` ones answer at once and report an idle engine: what is left
is the gateway's own time; `hands_back:STREAMS` ones do so too, as `hands_back` says. `queues` are stand-ins
(`stand_in`) in real time, which answer when the last token would be there, with the seconds that the request
waited; their load is told by the real sidecar's own estimates, report and stream, at its own intervals.
Prints `ready` when all listen.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
import uvloop

from e2e.bench.gateway.hands_back import HandsBack
from e2e.bench.gateway.http1 import Respond, ServerConnection, listen
from e2e.bench.gateway.settings import COST, LIMITS
from e2e.bench.gateway.stand_in import Request, StandIn, sidecar_report
from headrace_engine.contracts import LoadReport
from headrace_sidecar.estimates import Estimates
from headrace_sidecar.serve import AT_REST, INTERVAL
from headrace_sidecar.stream import Broadcast

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n"
INSTANT_ANSWER = orjson.dumps({"choices": [{"message": {"role": "assistant", "content": "x" * 200}}]})


@dataclass(slots=True)
class Reader:
    """One reader of a load stream."""

    connection: ServerConnection

    async def write(self, data: bytes) -> None:
        """Send a line; raises ConnectionError when the reader is gone."""
        transport = self.connection.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        transport.write(data)


@dataclass(slots=True)
class Running:
    """One stand-in in real time, with its sidecar."""

    name: str
    engine: StandIn
    estimates: Estimates = field(default_factory=Estimates)
    broadcast: Broadcast = field(default_factory=Broadcast)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    clients: dict[int, ServerConnection] = field(default_factory=dict)
    numbers: int = 0

    def respond(self, connection: ServerConnection, head: bytes, body: bytes) -> None:
        """Queue a request: its prompt is its words, one token each. A health check is answered at once."""
        if head.startswith(b"GET "):
            connection.answer(INSTANT_ANSWER)
            return
        asked = orjson.loads(body)
        prompt = asked["prompt"]
        self.numbers += 1
        request = Request(prompt.count(" ") + 1, asked["max_tokens"], time.monotonic(), index=self.numbers)
        self.clients[request.index] = connection
        self.engine.add(request)
        self.arrived.set()

    async def run(self) -> None:
        """Step for ever. Steps that end late, since the machine woke us late, are made up for by the next."""
        due = time.monotonic()
        while True:
            while not self.engine.busy:
                self.arrived.clear()
                await self.arrived.wait()
                due = time.monotonic()
            due += self.engine.begin(time.monotonic())
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            late = time.monotonic() - due
            for request in self.engine.end(time.monotonic()):
                answer = {"wait": request.wait, "late": late}
                self.clients.pop(request.index).answer(orjson.dumps(answer))

    async def observe(self, reported: Callable[[LoadReport], LoadReport]) -> None:
        """Report for ever, as the sidecar does."""
        while True:
            report = sidecar_report(self.engine, self.estimates, self.name)
            self.broadcast.offer(reported(report), time.monotonic())
            await asyncio.sleep(INTERVAL if self.engine.busy else AT_REST)


async def main(kind: str, port: int, sidecar_port: int, addresses: list[str]) -> None:
    """Serve as the engines until killed."""
    kind, _, streams = kind.partition(":")
    hands_back = HandsBack(int(streams or 0))
    async with asyncio.TaskGroup() as group:
        for address in addresses:
            each = Running(address, StandIn(COST, LIMITS))
            if kind == "queues":
                group.create_task(each.run())
            group.create_task(each.observe(hands_back.reported))
            respond = {"instant": instant, "queues": each.respond, "hands_back": hands_back.respond}[kind]
            await listen(address, port, respond)
            await listen(address, sidecar_port, streaming(each.broadcast, group.create_task))
        gc.freeze()
        print("ready", flush=True)


def instant(connection: ServerConnection, _head: bytes, _body: bytes) -> None:
    """Answer every request at once."""
    connection.answer(INSTANT_ANSWER)


def streaming(broadcast: Broadcast, start: Callable[..., object]) -> Respond:
    """Make what answers a reader of the load stream."""

    async def feed(reader: Reader) -> None:
        try:
            await broadcast.feed(reader)
        except ConnectionError:
            return

    def respond(connection: ServerConnection, _head: bytes, _body: bytes) -> None:
        if connection.transport is not None:
            connection.transport.write(STREAM_HEAD)
        start(feed(Reader(connection)))

    return respond


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
