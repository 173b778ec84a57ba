"""Three real engines on one core of this machine, behind the real Envoy, picker and relay.

Each has its sidecar. All engines compute on the first core that we may use: it divides its time among those
that have something to do. All else is on the last.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from e2e import ports
from e2e.bench.continuation.signer import Signer
from e2e.bench.gateway.settings import NAMESPACE
from e2e.bench.gateway.testbed import HOST, Testbed, start_testbed
from e2e.bench.live.clients import Asker
from e2e.bench.live.servers import NAME, Engines
from e2e.bench.turns import forwarder
from headrace_engine.contracts import PolicyDocument, Slice, dumps
from headrace_engine.control.paths import resume_key_path

ADDRESSES = ("127.0.9.1", "127.0.9.2", "127.0.9.3")
PLAIN = PolicyDocument("FCFS")
DEADLINE = 600.0  # seconds for an answer


@dataclass(frozen=True, slots=True)
class ThreeEngines:
    """The engines, named by their addresses, and the gateway before them."""

    engines: Engines
    testbed: Testbed

    @property
    def asker(self) -> Asker:
        """Who sends requests to the gateway."""
        url = f"http://{HOST}:{self.testbed.ports['gateway']}"
        longest = self.engines.device.settings.max_model_len
        return Asker(url, self.engines.end_token, longest, DEADLINE)

    async def start(self) -> None:
        """Start everything; raises ServerError or TestbedError."""
        signer = Signer()
        key = self.testbed.folder / "private-key.pem"
        signer.write(key)
        for address in ADDRESSES:
            self._start_engine(address, signer)
        self.apply(None)
        self.testbed.start_relay(key)
        self.testbed.start_picker()
        self.testbed.start_envoy()
        await self.testbed.ready(len(ADDRESSES))

    def apply(self, its_slice: Slice | None) -> None:
        """Have engines serve with such slices and streams move, or neither."""
        for address in ADDRESSES:
            self.engines.apply(address, replace(PLAIN, slice=its_slice))
        moves = its_slice is not None
        self.testbed.apply({NAME: ("SAL", ADDRESSES)}, resume=True, rebalance=moves)

    def _start_engine(self, address: str, signer: Signer) -> None:
        """Start an engine and its sidecar, which is reached at the engine's address as in a pod."""
        own = self.testbed.ports
        blocks = self.engines.device.settings.num_blocks
        self.engines.start(address, blocks, policy=PLAIN, address=address, port=own["engine"])
        server = self.engines.servers[address]
        config = server.folder / "config"
        config.mkdir()
        key = config / resume_key_path(server.shared).name
        key.write_text(dumps(signer.key(f"{NAMESPACE}/{NAME}")))
        [port] = ports.free(1)
        environment = {
            "HEADRACE_DIR": str(server.shared),
            "HEADRACE_POLICY_DIR": str(config),
            "HEADRACE_PORT": str(port),
            "HEADRACE_ENGINE_URL": server.url,
        }
        self.testbed.start(
            f"sidecar-{address}",
            [sys.executable, "-m", "headrace_sidecar.engine", "serve"],
            environment={**os.environ, **environment},
        )
        self.testbed.start(
            f"forwarder-{address}",
            [sys.executable, str(forwarder.__file__), f"{address}:{own['sidecar']}", str(port)],
        )


@contextmanager
def open_three(engines: Engines, folder: Path) -> Iterator[ThreeEngines]:
    """Prepare to start them, in an empty folder; all ends with the context."""
    with start_testbed(folder) as testbed:
        try:
            yield ThreeEngines(engines, testbed)
        finally:
            engines.stop()
