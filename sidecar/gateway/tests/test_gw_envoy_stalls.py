"""Real Envoy, and a picker that stands still for seconds at a time, as where CPU is short."""

import asyncio
import contextlib
import time

import pytest
from gw_rig import Rig, chat, until

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(240)]

CHAT = "/v1/chat/completions"
STALLS = ((0.4, 0.3), (1.5, 0.2), (3.0, 0.5), (5.0, 0.05))  # seconds without and with the picker
AT_ONCE = 8  # requests under way, so that a picker that goes on has some that nobody waits for
MOST_SECONDS = 10.0  # of one answer; Envoy waits a quarter of one for the picker, and the rest is the machine


class Impatient(Rig):
    """Envoy waits for the picker as it does in a cluster."""

    def wait_longer(self, document):
        pass


RIG = Impatient


@contextlib.asynccontextmanager
async def stalls(rig):
    """The picker stops and goes on, again and again; an event that is set when `STALLS` are through."""
    through = asyncio.Event()

    async def run():
        while True:
            for without, with_ in STALLS:
                rig.pause_picker()
                await asyncio.sleep(without)
                rig.resume_picker()
                await asyncio.sleep(with_)
            through.set()

    task = asyncio.create_task(run())
    try:
        yield through
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        rig.resume_picker()


async def ask(rig, session):
    """What a client is told, and after how many seconds."""
    began = time.monotonic()
    async with session.post(rig.url + CHAT, json=chat("chat")) as response:
        answer = await response.json()
        error = answer.get("error") or {}
        told = response.status, response.headers.get("retry-after"), error.get("code"), error.get("message")
    return told, time.monotonic() - began


async def test_without_an_engine_the_answer_is_at_once_and_always_the_same(rig, session):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine]})
    async with stalls(rig) as through:
        await engine.stop()
        while not through.is_set():
            for told, seconds in await asyncio.gather(*(ask(rig, session) for _ in range(AT_ONCE))):
                assert told == (503, "5", "no_ready_engine", "the service llm/chat has no ready engine")
                assert seconds < MOST_SECONDS
        await engine.start()

        async def serves():
            return (await ask(rig, session))[0][0] == 200

        await until(serves, "the engine serves again")


async def test_an_engine_serves_on(rig, session):
    engines = [await rig.engine(number) for number in (1, 2)]
    await rig.apply(session, {rig.config("chat"): engines})
    async with stalls(rig) as through:
        while not through.is_set():
            for told, seconds in await asyncio.gather(*(ask(rig, session) for _ in range(AT_ONCE))):
                assert told[0] == 200
                assert seconds < MOST_SECONDS
