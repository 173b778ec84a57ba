"""Streams that were handed back ask one after the other, each service's in a line of its own."""

import asyncio

import pytest

from headrace_gateway.relay import lines
from headrace_gateway.relay.lines import Lines


class Engines:
    """Have room for as many streams as are let in."""

    def __init__(self):
        self.room, self.asked, self.gone_on = 0, [], []

    def ask(self, name):
        async def asked(_waited):
            self.asked.append(name)
            await asyncio.sleep(0)
            if not self.room:
                return None
            self.room -= 1
            self.gone_on.append(name)
            return name

        return asked


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(lines, "TICK", 0.0)


@pytest.fixture
def engines():
    return Engines()


async def let(engines, room):
    """Let so many in, and all ask who would."""
    engines.room = room
    for _ in range(200):
        await asyncio.sleep(0)


async def test_only_the_first_asks_until_there_is_room_for_it(engines):
    waiting = Lines()
    tasks = {
        name: asyncio.create_task(waiting.ask_in_turn("chat", tokens, engines.ask(name)))
        for name, tokens in (("long", 900), ("short", 9), ("middle", 90))
    }
    await let(engines, 0)
    assert set(engines.asked[1:]) == {"short"}  # the first to come asked once, and was alone then
    await let(engines, 2)
    assert engines.gone_on == ["short", "middle"]
    assert not tasks["long"].done()
    await let(engines, 1)
    assert await asyncio.gather(*tasks.values()) == ["long", "short", "middle"]


async def test_who_leaves_or_fails_keeps_nobody_back(engines):
    waiting = Lines()

    async def failing(_waited):
        raise FileNotFoundError

    lost = asyncio.create_task(waiting.ask_in_turn("chat", 0, failing))
    gone, last = (
        asyncio.create_task(waiting.ask_in_turn("chat", 9, engines.ask(name))) for name in ("gone", "last")
    )
    await let(engines, 0)
    with pytest.raises(FileNotFoundError):
        await lost
    assert set(engines.asked) == {"gone"}
    gone.cancel()
    await let(engines, 1)
    assert await last == "last"
    assert not waiting._lines


async def test_no_service_waits_for_another(engines):
    waiting, other = Lines(), Engines()
    stuck = asyncio.create_task(waiting.ask_in_turn("chat", 0, engines.ask("stuck")))
    free = asyncio.create_task(waiting.ask_in_turn("code", 900, other.ask("free")))
    await let(other, 1)
    assert await free == "free"
    stuck.cancel()
