"""For how long one body holds the picker's event loop, on which the picks of all services wait.

The picker's own server decides about each kind of body, in this process, while a clock ticks on the same
loop. The longest time between two ticks counts, and of several trials the shortest: what else the machine
does can only lengthen it.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from headrace_engine.contracts import GatewayConfig
from headrace_gateway import names
from headrace_gateway.catalog import Catalog, Service
from headrace_gateway.headers import ROUTE_HEADER
from headrace_gateway.pick import pick_server
from headrace_gateway.pick.http_server import Request
from headrace_gateway.pick.picker import Picker
from headrace_gateway.pick.prompt_reader import MOST_BYTES, MOST_OBJECTS, MOST_VALUES, PromptReader
from headrace_gateway.settings import MAX_BODY_BYTES

TRIALS = 7
ENGINES = 64
TICK = 0.0002  # seconds
ROOM = 1024  # bytes of a body beside what fills it


def bodies() -> Mapping[str, bytes]:
    """Make the largest bodies of each kind: what the loop itself may read, and what Envoy lets through."""
    inside, whole = MOST_BYTES - ROOM, MAX_BODY_BYTES - ROOM
    words = "word " * (whole // 5)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    return {
        "text": _chat(words[:inside]),
        "longest_text": _chat(words),
        "escapes": b'{"model":"chat","prompt":"' + rb"\u00e9" * (inside // 6) + b'"}',
        "token_ids": _body(prompt=list(range(MOST_VALUES - 10))),
        "most_token_ids": _body(prompt=[100_000] * (whole // 7)),
        "messages": _body(messages=[{"role": "user", "content": "x"}] * (MOST_OBJECTS - 2)),
        "most_messages": _body(messages=[{"role": "user", "content": ""}] * (whole // 30)),
        "tools": _body(messages=[{"role": "user", "content": "x"}], tools=[tool] * (MOST_OBJECTS // 3 - 2)),
        "most_tools": _body(messages=[{"role": "user", "content": "x"}], tools=[tool] * (whole // 80)),
        "prompts": _body(prompt=["x" * 200] * 2048),
        "numbers": _body(prompt="x", logit_bias={str(number): -100 for number in range(MOST_VALUES - 10)}),
        "nested": b'{"model":"chat","prompt":"x","stop":' + b"[" * 1000 + b"]" * 1000 + b"}",
        "nested_deep": b'{"model":"chat","prompt":' + b"[" * (inside // 2) + b"]" * (inside // 2) + b"}",
        "cut_short": _chat(words[:inside])[:-10],
        "spaces": b'{"model":"chat","prompt":"x"' + b" " * inside + b"}",
    }


def _chat(text: str) -> bytes:
    return _body(messages=[{"role": "user", "content": text}])


def _body(**fields: Any) -> bytes:
    return json.dumps({"model": "chat", **fields}, separators=(",", ":")).encode()


async def measure() -> dict[str, float]:
    """Return the milliseconds for which each kind of body holds the loop, and the most of all."""
    config = GatewayConfig("llm", "chat", ("chat",), "chat")
    picker = Picker(time.monotonic, Random(1))
    addresses = tuple(f"10.0.0.{number}" for number in range(ENGINES))
    picker.set_catalog(Catalog.build([Service(config, addresses)]))
    held: dict[str, float] = {}
    async with PromptReader() as reader:
        stays = cast("Any", SimpleNamespace(is_lost=False))
        server = pick_server.server(picker, reader, lambda: "current", lambda: True, MAX_BODY_BYTES)
        for kind, body in bodies().items():
            request = Request(names.PICK_PATH, {ROUTE_HEADER: "llm/chat"}, body, stays)
            trials = [await longest_hold(partial(server.answer, request)) for _ in range(TRIALS)]
            held[f"loop_held_ms_{kind}"] = round(1000 * min(trials), 2)
    return held | {"loop_held_ms": max(held.values())}


async def longest_hold(answer: Callable[[], bytes | Awaitable[bytes]]) -> float:
    """Return the longest time in seconds for which an answer lets nobody else onto the loop."""
    longest, last = 0.0, time.perf_counter()

    async def tick() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(TICK)
            now = time.perf_counter()
            longest, last = max(longest, now - last - TICK), now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(2 * TICK)
    given = answer()
    if not isinstance(given, bytes):
        await given
    await asyncio.sleep(2 * TICK)
    ticking.cancel()
    with suppress(asyncio.CancelledError):
        await ticking
    return longest
