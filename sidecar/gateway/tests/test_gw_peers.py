"""Pickers that tell each other what they placed, over real datagrams on loopback."""

import asyncio

import pytest

from e2e import ports
from headrace_gateway.balancers.endpoint import Work
from headrace_gateway.pick.peers import Peers, by_name
from headrace_gateway.pick.placement import Placement

PLACED = Placement("10.0.0.1", Work(tokens=100.0), [])
FIRST, SECOND, STRANGER = "127.0.0.1", "127.0.0.2", "127.0.0.3"


@pytest.fixture
def port():
    return ports.free(1)[0]


async def started(address, port, others=()):
    heard = asyncio.Queue()
    peers = Peers(port, lambda service, placement: heard.put_nowait((service, placement)))
    await peers.start(address)
    peers.addresses = frozenset(others)
    return peers, heard


async def test_each_hears_of_what_the_other_placed(port):
    first, _ = await started(FIRST, port, [SECOND])
    second, heard = await started(SECOND, port, [FIRST])
    first.share("llm/chat", PLACED)
    service, placement = await asyncio.wait_for(heard.get(), 10)
    assert (service, placement.address, placement.work.tokens) == ("llm/chat", "10.0.0.1", 100.0)
    first.close()
    second.close()


async def test_strangers_and_nonsense_are_not_heard(port, caplog):
    second, heard = await started(SECOND, port, [FIRST])
    stranger, _ = await started(STRANGER, port, [SECOND])
    first, _ = await started(FIRST, port, [SECOND])
    stranger.share("llm/chat", PLACED)
    for _ in range(3):
        first._transport.sendto(b"nonsense", (SECOND, port))
    first.share("llm/code", PLACED)
    assert (await asyncio.wait_for(heard.get(), 10))[0] == "llm/code"
    assert heard.empty()
    assert caplog.text.count("cannot be read") == 1
    for each in (first, second, stranger):
        each.close()


async def test_to_tell_who_is_gone_costs_nothing(port):
    first, _ = await started(FIRST, port, [SECOND])
    for _ in range(3):
        first.share("llm/chat", PLACED)
        await asyncio.sleep(0)
    first.close()
    first.share("llm/chat", PLACED)  # after the end, too


async def test_who_cannot_be_found_stays_who_they_were(port, monkeypatch):
    monkeypatch.setattr("headrace_gateway.pick.peers.FIND_SECONDS", 0.0)
    peers, _ = await started(FIRST, port)
    answers = iter([{SECOND}, OSError("no name server"), {SECOND, STRANGER}, OSError("again")])
    seen, over = [], asyncio.Event()

    async def find():
        seen.append(set(peers.addresses))
        answer = next(answers, None)
        if answer is None:
            over.set()
            await asyncio.Event().wait()
        if isinstance(answer, OSError):
            raise answer
        return answer

    following = asyncio.create_task(peers.follow(find))
    await asyncio.wait_for(over.wait(), 10)
    following.cancel()
    peers.close()
    assert seen == [set(), {SECOND}, {SECOND}, {SECOND, STRANGER}, {SECOND, STRANGER}]


async def test_a_name_gives_all_addresses_but_my_own():
    assert await by_name("localhost", me="10.0.0.1")() >= {FIRST}
    assert FIRST not in await by_name("localhost", me=FIRST)()
