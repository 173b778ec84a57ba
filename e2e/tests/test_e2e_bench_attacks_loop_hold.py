"""How long bodies hold the picker's loop: which of them it reads itself, and that holding it shows."""

import time

import orjson
import pytest

from e2e.bench.attacks import loop_hold
from headrace_gateway.pick.prompt_reader import takes_long
from headrace_gateway.settings import MAX_BODY_BYTES

BODIES = loop_hold.bodies()
ELSEWHERE = {"longest_text", "most_token_ids", "most_messages", "most_tools"}


def test_bodies_are_as_large_as_their_reader_allows():
    assert {kind for kind, body in BODIES.items() if takes_long(body)} == ELSEWHERE
    assert all(0.9 * MAX_BODY_BYTES < len(BODIES[kind]) <= MAX_BODY_BYTES for kind in ELSEWHERE)
    for kind in BODIES.keys() - {"nested_deep", "cut_short"}:
        assert orjson.loads(BODIES[kind])["model"] == "chat"


async def test_whoever_holds_the_loop_is_seen():
    def answer():
        time.sleep(0.05)
        return b""

    assert await loop_hold.longest_hold(answer) >= 0.05 - loop_hold.TICK


@pytest.mark.timeout(60)
async def test_every_kind_is_measured():
    figures = await loop_hold.measure()
    assert figures.keys() == {f"loop_held_ms_{kind}" for kind in BODIES} | {"loop_held_ms"}
    assert figures["loop_held_ms"] == max(figures.values())
