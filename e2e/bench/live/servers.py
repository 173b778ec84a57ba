"""The engines that take turns: each a vLLM server with random weights, on one core of its own or on the GPU.

On a CPU the engine core and its one worker thread run on the first core that we may use, this process and
the API servers on the last, all ahead of what else runs there if we may say so. Servers that no request goes
to cost next to nothing.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from e2e.bench.gateway.testbed import HOST, cpu_seconds
from e2e.bench.live.cases import Device
from e2e.bench.real_engine import vllm_server
from e2e.bench.real_engine.vllm_server import Server
from e2e.cluster import model
from headrace_engine.contracts import PolicyDocument, Prediction

CORES: Sequence[int] = sorted(os.sched_getaffinity(0))  # before we bind ourselves to one
NICE = -15
NAME = "live"  # of the model, as clients call it
FRESH = Prediction("None")  # put in force between two runs, so that each begins with nothing learned
ALONE = {"VLLM_PLUGINS": ""}  # of a stock server: it loads no plugin, wherever ours may be installed


@dataclass(slots=True)
class Engines:
    """The servers that run, by name; the plugin's has the name of no contestant."""

    device: Device
    folder: Path
    servers: dict[str, Server] = field(default_factory=dict)
    asked: dict[str, tuple[int, int | None, float]] = field(default_factory=dict)  # settings of each
    end_token: int = 0

    def write_model(self) -> None:
        """Write configuration and tokenizer; weights are made up when an engine starts."""
        folder = self.folder / "model"
        start, self.end_token = model.write_tokenizer(folder)
        made = {**self.device.model, "bos_token_id": start, "eos_token_id": self.end_token}
        (folder / "config.json").write_text(json.dumps(made))

    def start(
        self,
        name: str,
        blocks: int,
        budget: int | None = None,
        watermark: float = 0.0,
        policy: PolicyDocument | None = None,
        *,
        address: str = HOST,
        port: int | None = None,
    ) -> bool:
        """Start a server with so many KV blocks and wait until it serves; False if one like it runs.

        `budget`: --max-num-batched-tokens, None for vLLM's own. `watermark`: share of blocks kept free.
        `policy`: None for stock vLLM. `port`: where it listens, None for a free one. Raises ServerError.
        """
        if self.asked.get(name) == (blocks, budget, watermark):
            return False
        if name in self.servers:
            self.stop(name)
        settings = self.device.settings
        arguments = [
            f"--max-model-len={settings.max_model_len}",
            f"--block-size={settings.block_size}",
            f"--num-gpu-blocks-override={blocks}",
            f"--watermark={watermark}",
            *self.device.arguments,
        ]
        if budget is not None:
            arguments.append(f"--max-num-batched-tokens={budget}")
            if budget < settings.max_num_seqs:  # which vLLM would refuse
                arguments.append(f"--max-num-seqs={budget}")
        environment = {**self.device.environment, **({} if policy else ALONE)}
        weights = self.folder / "model"
        os.sched_setaffinity(0, CORES)  # it may start on any
        try:
            made = vllm_server.start(
                self.folder / f"{len(list(self.folder.iterdir()))}-{name}",
                weights,
                NAME,
                arguments,
                environment,
                policy=policy,
                address=address,
                port=port,
            )
        finally:
            self.stay()
        self.servers[name] = made
        self.asked[name] = (blocks, budget, watermark)
        made.wait_ready()
        if self.device.pinned:
            vllm_server.pin(made.engine_processes(), CORES[0])
            vllm_server.pin([made.process.pid], CORES[-1])
        return True

    def stay(self) -> None:
        """Keep this process on the core of the clients."""
        if self.device.pinned:
            os.sched_setaffinity(0, {CORES[-1]})

    def apply(self, name: str, policy: PolicyDocument) -> None:
        """Have the plugin's server begin anew with a policy: nothing learned of output lengths."""
        self.servers[name].apply(replace(policy, prediction=FRESH))
        self.servers[name].apply(policy)

    def disturbed_seconds(self, name: str) -> float:
        """Return for how long the engines' core has done anything else than a server's steps; 0 if unpinned.

        Of use as a difference. A neighbour's use of the processor behind a virtual core counts.
        """
        if not self.device.pinned:
            return 0.0
        return busy_seconds(CORES[0]) - sum(map(cpu_seconds, self.servers[name].engine_processes()))

    def stop(self, *names: str) -> None:
        """End these servers, or all."""
        for name in names or tuple(self.servers):
            del self.asked[name]
            self.servers.pop(name).stop()


@contextlib.contextmanager
def open_engines(device: Device, folder: Path) -> Iterator[Engines]:
    """Prepare to start servers, which end with the context; this process stays on its core meanwhile."""
    made = Engines(device, folder)
    made.write_model()
    made.stay()
    if device.pinned:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, NICE)  # what we start inherits it
    try:
        yield made
    finally:
        made.stop()
        os.sched_setaffinity(0, CORES)


def busy_seconds(core: int) -> float:
    """Return for how long a core was busy since the machine started, with whatever."""
    [line] = [each for each in Path("/proc/stat").read_text().splitlines() if each.startswith(f"cpu{core} ")]
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, line.split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
