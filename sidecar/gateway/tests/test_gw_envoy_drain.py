"""Real Envoy: its pod ends as the kubelet ends it, and clients with pooled connections lose nothing."""

import asyncio
import contextlib
import itertools
import random
import socket
import time
from dataclasses import dataclass, field

import aiohttp
import pytest
from gw_rig import Rig, chat, until

from e2e import helm

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(240)]

DRAIN_SECONDS = 8
SOON = 0.5  # until no new connection comes any more, as with kube-proxy
LENGTHS = (0.0, 0.2, 1.0, DRAIN_SECONDS / 2 - 1.5)  # seconds of an answer
IDLE = (0.0, 0.1, 1.0)  # seconds between two requests of a client
GAP = 0.05
LATE = 0.1  # seconds; where the machine is that late, what is promised of seconds is not


class Pulse:
    """Knows when this process, and so likely Envoy too, was kept from running."""

    def __init__(self):
        self._beats = [time.monotonic()]

    async def run(self):
        while True:
            await asyncio.sleep(GAP)
            self._beats.append(time.monotonic())

    def late(self, since):
        """Whether it was since then."""
        beats = [beat for beat in self._beats if beat >= since - GAP] + [time.monotonic()]
        return any(after - before > GAP + LATE for before, after in itertools.pairwise([since, *beats]))


@dataclass
class Service(aiohttp.abc.AbstractResolver):
    """What kube-proxy does of a Service: a new connection goes to one of the endpoints that it knows."""

    endpoints: list[tuple[str, int]]
    pulse: Pulse = field(default_factory=Pulse)
    lost: list[str] = field(default_factory=list)  # while the machine was in time
    served: int = 0

    async def resolve(self, host, port=0, family=socket.AF_INET):
        address, port = random.choice(self.endpoints)
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
        ]

    async def close(self):
        pass

    def pool(self):
        """One client's connections, which it never gives up by itself."""
        connector = aiohttp.TCPConnector(resolver=self, use_dns_cache=False, keepalive_timeout=3600)
        return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120))

    async def ask(self, pool, seconds):
        """One streamed answer that takes so long; not repeated if it is lost."""
        body = chat("chat", stream=True, max_tokens=round(seconds / GAP) + 1)
        begun, why = time.monotonic(), ""
        try:
            async with pool.post("http://gateway:80/v1/chat/completions", json=body) as response:
                text = await response.read()
            if response.status != 200 or not text.endswith(b"data: [DONE]\n\n"):
                why = f"{response.status}, {text[-80:]}"
        except aiohttp.ClientError as error:
            why = repr(error)
        if why and not self.pulse.late(begun):
            self.lost.append(f"{seconds:g} s: {why}")
        self.served += 1

    async def client(self, seed, stop):
        """Asks again and again over one pool."""
        source = random.Random(seed)
        async with self.pool() as pool:
            while not stop.is_set():
                await self.ask(pool, source.choice(LENGTHS))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), source.choice(IDLE))


class TwoEnvoys(Rig):
    """A second Envoy beside the first, with the same picker and engines."""

    def start(self):
        super().start()
        folder = self.folder / "other"
        folder.mkdir()
        self.other = Rig(folder)
        for port in ("ads_port", "picks_port", "http_port", "engine_port", "sidecar_port"):
            setattr(self.other, port, getattr(self, port))
        self.other.picker = self.picker
        self.other.start_envoy()

    def stop(self):
        self.other.picker = None
        self.other.stop()
        super().stop()


RIG = TwoEnvoys


def pre_stop(rig):
    """The chart's hook, for this Envoy, and how long the kubelet gives it."""
    manifests = helm.render({"gateway": {"drainSeconds": DRAIN_SECONDS}})
    [spec] = [
        m["spec"]["template"]["spec"]
        for m in manifests
        if (m["kind"], m["metadata"]["name"]) == ("Deployment", "headrace-gateway")
    ]
    command = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    for mine, theirs in ((f"/{rig.admin_port}", "/9901"), (str(rig.drain_file), "/run/envoy/draining")):
        assert theirs in command[-1]
        command[-1] = command[-1].replace(theirs, mine)
    return command, spec["terminationGracePeriodSeconds"]


async def end(rig):
    """End this Envoy as the kubelet ends a container: the hook, SIGTERM, and SIGKILL when the time is up."""
    command, grace = pre_stop(rig)
    async with asyncio.timeout(grace):
        hook = await asyncio.create_subprocess_exec(*command)
        assert await hook.wait() == 0
        rig.envoy.terminate()
        assert await asyncio.to_thread(rig.envoy.wait) == 0
    rig.envoy = None


async def test_clients_with_pooled_connections_lose_nothing_when_an_envoy_ends(rig, session):
    engine = await rig.engine(1, gap=GAP)
    services = {rig.config("chat"): [engine]}
    for each in (rig, rig.other):
        await each.apply(session, services)
    both = [("127.0.0.1", rig.port), ("127.0.0.1", rig.other.port)]
    service, stop = Service(both[:1]), asyncio.Event()
    pulse = asyncio.create_task(service.pulse.run())
    # These were used once, and are used again only when the pod that they lead to is about to end.
    quiet = [service.pool() for _ in range(10)]
    for pool in quiet:
        await service.ask(pool, 0)
    service.endpoints = both
    load = [asyncio.create_task(service.client(seed, stop)) for seed in range(30)]
    await until(lambda: service.served > 100, "requests flow")
    ending = asyncio.create_task(end(rig))
    await asyncio.sleep(SOON)
    service.endpoints = both[1:]
    await asyncio.sleep(DRAIN_SECONDS - SOON - 0.8)
    await asyncio.gather(*(service.ask(pool, max(LENGTHS)) for pool in quiet))
    await ending
    served = service.served
    await until(lambda: service.served > served + 50, "requests flow past it")
    stop.set()
    await asyncio.gather(*load, *(pool.close() for pool in quiet))
    pulse.cancel()
    assert service.lost == []
