"""Two real engines behind Envoy, picker and relay on loopback, of which one can be killed or stopped."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from e2e.bench.continuation import features, resuming_engines
from e2e.bench.continuation.signer import Signer
from e2e.bench.continuation.streams import ask
from e2e.bench.gateway.testbed import Testbed, start_testbed
from e2e.bench.real_engine.vllm_server import Server
from headrace_engine.contracts import GatewayConfig, encode

ADDRESSES = ("127.0.9.1", "127.0.9.2")
SERVICE = "bench/tiny"
POLL = 0.02  # seconds
PATIENCE = 120.0


@dataclass(slots=True)
class Rig:
    """The gateway and its engines, by address."""

    testbed: Testbed
    client: httpx.AsyncClient
    signer: Signer = field(default_factory=Signer)
    engines: dict[str, Server] = field(default_factory=dict)
    starts: int = 0

    @property
    def url(self) -> str:
        """Where clients go."""
        return f"http://{self.testbed.gateway.host}:{self.testbed.gateway.port}"

    async def start(self, *addresses: str) -> None:
        """Start an engine at each of these addresses, and wait until all serve."""
        folder = self.testbed.folder
        for address in addresses:
            self.starts += 1
            self.engines[address] = resuming_engines.start_engine(
                folder / f"engine-{self.starts}",
                folder / "tiny",
                SERVICE,
                self.signer,
                address=address,
                port=self.testbed.ports["engine"],
            )
        for address in addresses:
            await asyncio.to_thread(self.engines[address].wait_ready)

    def tell(self, addresses: Collection[str], terminating: Collection[str] = ()) -> None:
        """Tell the picker which engines there are, and of which of them the pods were deleted."""
        config = GatewayConfig(
            namespace="bench",
            name="tiny",
            models=(features.MODEL, SERVICE),
            served_name=features.MODEL,
            balancer="RoundRobin",
            port=self.testbed.ports["engine"],
            sidecar_port=self.testbed.ports["sidecar"],
            resume=True,
            drain="Move",
        )
        entry = {"config": encode(config), "addresses": [*addresses], "terminating": [*terminating]}
        new = self.testbed.folder / "catalog.new"
        new.write_text(json.dumps([entry]))
        new.rename(self.testbed.folder / "catalog.json")

    async def running(self, address: str) -> float:
        """Return how many requests an engine computes, or has in its queue."""
        return await self._metric(address, "vllm:num_requests_running", "vllm:num_requests_waiting{")

    async def until_chosen(self, address: str) -> None:
        """Ask through the gateway until an engine has answered; raises TimeoutError."""
        path, body = features.body("greedy", "again")
        before = await self._metric(address, "vllm:request_success_total")
        async with asyncio.timeout(PATIENCE):
            while await self._metric(address, "vllm:request_success_total") == before:
                await ask(self.client, self.url + path, {**body, "max_tokens": 1})

    async def _metric(self, address: str, *names: str) -> float:
        lines = (await self.client.get(f"{self.engines[address].url}/metrics")).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(names))

    async def until_running(self, address: str, holds: Callable[[float], bool]) -> None:
        """Wait until `holds` is true of the number of requests that an engine has; raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if holds(await self.running(address)):
                    return
                await asyncio.sleep(POLL)


@contextlib.asynccontextmanager
async def start_rig(folder: Path) -> AsyncIterator[Rig]:
    """Start it in an empty folder; all of its processes end with the context."""
    features.write_model(folder / "tiny")
    limits = httpx.Limits(max_connections=None)
    with start_testbed(folder) as testbed:
        async with httpx.AsyncClient(timeout=600, limits=limits) as client:
            rig = Rig(testbed, client)
            rig.signer.write(folder / "private-key.pem")
            try:
                await rig.start(*ADDRESSES)
                rig.tell(ADDRESSES)
                testbed.start_relay(folder / "private-key.pem")
                testbed.start_picker()
                testbed.start_envoy()
                await testbed.ready(0)
                yield rig
            finally:
                for server in rig.engines.values():
                    server.stop()
