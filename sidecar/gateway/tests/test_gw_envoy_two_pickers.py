"""Real Envoy, two real pickers: both answer picks, one configures Envoy, and either may die.

A file with the leader's address stands for the Lease.
"""

import asyncio
import os
import subprocess
import sys

import aiohttp
import pytest
from gw_rig import HERE, Rig, ask_pickers, chat, posted, until

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(240)]

CHAT = "/v1/chat/completions"
FIRST, SECOND = "127.0.0.1", "127.0.0.2"
MOST_MISSED = 3  # requests that Envoy sends on without a picker while one dies


class Pair(Rig):
    """Two pickers on the same ports of two addresses, as a headless Service names them."""

    def __init__(self, folder):
        super().__init__(folder)
        self.leader = folder / "leader"
        self.cut_off = folder / "cut-off"
        self.pickers = {}

    def edit(self, document):
        ask_pickers(document, (FIRST, SECOND))

    def lead(self, address):
        new = self.leader.with_suffix(".new")
        new.write_text(address)
        new.rename(self.leader)

    def start(self):
        self.write_catalog({})
        self.lead(FIRST)
        self.start_one(FIRST)
        self.start_one(SECOND)
        self.start_envoy()

    async def revive(self, session):
        """Left to `settle`, which also waits for both to follow."""

    def start_one(self, address):
        ports = map(str, (self.ads_port, self.picks_port, self.http_port))
        command = [sys.executable, str(HERE / "gw_picker.py"), str(self.catalog_file), *ports]
        with (self.folder / f"picker-{address}.log").open("ab") as log:
            self.pickers[address] = subprocess.Popen(
                [*command, address, str(self.leader)],
                stderr=log,
                env={**os.environ, "PYTHONWARNINGS": "default"},
            )

    def kill_one(self, address):
        picker = self.pickers.pop(address)
        picker.kill()
        picker.wait()

    def restart_envoy(self):
        self.envoy.kill()
        self.envoy.wait()
        self.start_envoy()

    def stop(self):
        for address in tuple(self.pickers):
            self.kill_one(address)
        super().stop()

    async def count(self, session, address, name="headrace_gateway_picks_total"):
        """Sum of one picker's samples of this name; None while it does not answer."""
        try:
            async with session.get(f"http://{address}:{self.http_port}/metrics") as response:
                lines = (await response.text()).splitlines()
        except aiohttp.ClientError:
            return None
        found = [line for line in lines if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    async def asks_last(self, session, addresses):
        """Whether these are the pickers that Envoy asks only if nobody else is there."""
        [pickers] = [each for each in await self._clusters(session) if each["name"] == "picker"]
        return set(addresses) == {
            host["address"]["socket_address"]["address"]
            for host in pickers["host_statuses"]
            if host["health_status"].get("failed_active_degraded_check")
        }

    async def settled(self, session, address, engines):
        """Whether this picker follows so many engines, and Envoy asks it."""
        following = await self.count(session, address, "headrace_gateway_engines{") == engines
        return following and (await self._health(session))["picker"].get(address, False)


RIG = Pair


async def settle(rig, session, services):
    """Wait until Envoy routes by this catalog, and asks both pickers, which follow it."""
    rig.lead(FIRST)
    for address in (FIRST, SECOND):
        if address not in rig.pickers:
            rig.start_one(address)
    await rig.apply(session, services)
    engines = sum(len(each) for each in services.values())
    for address in (FIRST, SECOND):
        await until(lambda address=address: rig.settled(session, address, engines), f"{address} picks")


async def load(rig, session, stop, statuses):
    while not stop.is_set():
        statuses.append((await posted(session, rig.url + CHAT, chat("chat")))[0])


async def test_both_choose_and_know_what_the_other_chose(rig, session):
    await settle(rig, session, {rig.config("chat"): [await rig.engine(1), await rig.engine(2)]})
    counted = ("headrace_gateway_picks_total", "headrace_gateway_peer_placements_total")

    async def counts():
        return [[await rig.count(session, each, name) for each in (FIRST, SECOND)] for name in counted]

    picks, heard = await counts()
    for _ in range(40):
        assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200

    async def all_heard():
        nonlocal new_picks, new_heard
        now_picks, now_heard = await counts()
        new_picks = [now - before for now, before in zip(now_picks, picks, strict=True)]
        new_heard = [now - before for now, before in zip(now_heard, heard, strict=True)]
        return new_heard == new_picks[::-1]

    new_picks = new_heard = []
    await until(all_heard, "each hears what the other chose")
    assert sum(new_picks) == 40
    assert min(new_picks) > 0
    assert [await rig.count(session, each, "headrace_gateway_leader ") for each in (FIRST, SECOND)] == [1, 0]


@pytest.mark.parametrize(("cut_off", "asked"), [([FIRST], [SECOND]), ([FIRST, SECOND], [FIRST, SECOND])])
async def test_who_has_lost_the_api_server_is_asked_only_if_all_have(rig, session, cut_off, asked):
    await settle(rig, session, {rig.config("chat"): [await rig.engine(1)]})
    rig.cut_off.write_text(" ".join(cut_off))
    await until(lambda: rig.asks_last(session, cut_off), "Envoy knows who is out of date")
    before = {each: await rig.count(session, each) for each in (FIRST, SECOND)}
    for _ in range(40):
        assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200
    assert {each for each in before if await rig.count(session, each) > before[each]} == set(asked)
    rig.cut_off.unlink()
    await until(lambda: rig.asks_last(session, ()), "who is current again is asked again")


@pytest.mark.parametrize("end", ["killed", "outvoted"])
async def test_the_other_takes_over_and_no_request_is_lost(rig, session, end):
    over = asyncio.Event()
    engines = [await rig.engine(number, gap=0.05, over=over) for number in (1, 2)]
    await settle(rig, session, {rig.config("chat"): engines})

    async def stream():
        async with session.post(rig.url + CHAT, json=chat("chat", stream=True)) as response:
            return response.status, (await response.content.read()).endswith(b"[DONE]\n\n")

    streams = [asyncio.create_task(stream()) for _ in range(10)]
    stop, statuses = asyncio.Event(), []
    clients = [asyncio.create_task(load(rig, session, stop, statuses)) for _ in range(3)]
    await until(lambda: len(statuses) > 20, "requests flow")
    missed = await rig.missed(session)
    if end == "killed":
        rig.kill_one(FIRST)
        seen = len(statuses)
        await until(lambda: len(statuses) > seen + 50, "requests flow without a leader")
    rig.lead(SECOND)
    before = await rig.count(session, SECOND)
    seen = len(statuses)
    await until(lambda: len(statuses) > seen + 50, "requests flow with the other leader")
    stop.set()
    await asyncio.gather(*clients)
    assert set(statuses) == {200}
    assert await rig.count(session, SECOND) > before
    assert await rig.missed(session) - missed <= MOST_MISSED
    over.set()
    assert set(await asyncio.gather(*streams)) == {(200, True)}


@pytest.mark.parametrize("dead", [FIRST, SECOND])
async def test_a_fresh_envoy_starts_and_follows_changes_with_either_picker(rig, session, dead):
    engine = await rig.engine(1)
    await settle(rig, session, {rig.config("chat"): [engine]})
    rig.kill_one(dead)
    rig.restart_envoy()
    other = await rig.engine(2)
    await rig.apply(session, {rig.config("chat"): [engine, other], rig.config("code"): [other]})
    assert (await posted(session, rig.url + CHAT, chat("code")))[0] == 200
