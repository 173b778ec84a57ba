"""Two real vLLM engines of different services in one group, on one core of this machine.

The core stands in for the GPU that they would share: without turns the kernel divides its time among them, as
a GPU does. One service has short answers that come in bursts, the other long ones that come at random.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from e2e.bench.real_engine import vllm_server
from e2e.bench.real_engine.vllm_server import Server
from e2e.bench.turns import step_log
from e2e.bench.turns.group import HOST, Group
from headrace_engine.contracts import PolicyDocument, dumps
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.control.files import write_whole
from headrace_engine.control.paths import turn_group_path

SECONDS = 14  # of arrivals
PROMPT = 32  # tokens
SHORT, LONG = "short", "long"
OUTPUTS = {SHORT: (4, 8, 12), LONG: (80, 160, 240)}  # tokens
BURST, LONG_PER_SECOND = 8, 3.0
ALONE = 5  # requests of each service, one after another, that tell how long one takes alone
ANSWER_WITHIN = 300.0
KEEP_ALIVE = 3.0  # vLLM closes a connection that was idle for 5 s, whatever is on the way to it
GROUP_SECONDS = 0.5  # until engines have read that their group has changed; they look ten times a second
SHAPE = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 4}
ARGUMENTS = (
    *("--dtype=float32", "--enforce-eager", "--max-model-len=1024", "--max-num-seqs=32"),
    "--no-enable-prefix-caching",
    "--distributed-executor-backend=uni",
    "--shutdown-timeout=30",  # the engine ends by itself, and writes its log
)
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine computes in its own process, as it does for one GPU
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it is sent, seconds from the start, to which service, with which prompt."""

    at: float
    service: str
    prompt: tuple[int, ...]
    output: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request; times are seconds."""

    service: str
    ttft: float
    e2e: float
    tokens: tuple[int, ...]


@dataclass(slots=True)
class Engines:
    """Both engines, and the turn server's group."""

    folder: Path
    servers: dict[str, Server]
    group: Group
    alone: dict[str, float] = field(default_factory=dict)  # seconds of a request by itself, by service

    def take_turns(self, wanted: bool) -> None:
        """Have both take turns from now on, or none."""
        for server in self.servers.values():
            path = turn_group_path(server.shared)
            if wanted:
                write_whole(path, dumps(TurnGroup(HOST, self.group.port, self.group.token)).encode())
            else:
                path.unlink(missing_ok=True)
        time.sleep(GROUP_SECONDS)

    def logs(self) -> dict[str, Any]:
        """Return what `step_log` wrote down of each; after their end."""
        return {name: json.loads(log_of(self.folder, name).read_text()) for name in self.servers}


def log_of(folder: Path, service: str) -> Path:
    """Return where the engine of a service writes down its steps."""
    return folder / f"{service}-steps.json"


@contextmanager
def running(folder: Path, asynchronous: bool) -> Iterator[Engines]:
    """Run both engines, which compute on the first core, and the turn server; all else is on the last."""
    cores = sorted(os.sched_getaffinity(0))
    weights = folder / "model"
    vllm_server.write_model(weights, SHAPE)
    plugin = write_plugin(folder / "step-log")
    group = Group(folder, 0.0)
    servers: dict[str, Server] = {}
    scheduling = "--async-scheduling" if asynchronous else "--no-async-scheduling"
    try:
        group.start_server()
        for service in (SHORT, LONG):
            environment = {
                **ENVIRONMENT,
                step_log.VARIABLE: str(log_of(folder, service)),
                "PYTHONPATH": os.pathsep.join(filter(None, [str(plugin), os.environ.get("PYTHONPATH")])),
            }
            servers[service] = vllm_server.start(
                folder / service,
                weights,
                service,
                (*ARGUMENTS, scheduling),
                environment,
                policy=PolicyDocument("FCFS"),
            )
            servers[service].wait_ready()
        for server in servers.values():
            vllm_server.pin(server.engine_processes(), cores[0])
        others = [server.process.pid for server in servers.values()]
        vllm_server.pin([*others, group.processes["server"].pid, os.getpid()], cores[-1])
        yield Engines(folder, servers, group)
    finally:
        os.sched_setaffinity(0, cores)
        for server in servers.values():
            server.stop()
        group.stop()


def write_plugin(folder: Path) -> Path:
    """Make a folder in which vLLM finds `step_log` as a plugin."""
    metadata = folder / "headrace_step_log-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: headrace-step-log\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nheadrace_step_log = headrace_step_log:register\n"
    )
    (folder / "headrace_step_log.py").write_text(Path(step_log.__file__).read_text())
    return folder


def make_requests(seed: int, seconds: int = SECONDS) -> list[Request]:
    """Make both services' requests, sorted by time."""
    chance = random.Random(seed)
    arrivals = [(second + 0.5, SHORT) for second in range(seconds) for _ in range(BURST)]
    at = 0.0
    while at < seconds:
        arrivals.append((at, LONG))
        at += chance.expovariate(LONG_PER_SECOND)
    return [
        Request(at, service, make_prompt(chance), chance.choice(OUTPUTS[service]))
        for at, service in sorted(arrivals)
    ]


def make_prompt(chance: random.Random) -> tuple[int, ...]:
    """Make a prompt of random tokens."""
    return tuple(chance.randrange(256) for _ in range(PROMPT))


async def serve(engines: Engines, requests: Sequence[Request]) -> list[Answer]:
    """Send each request when it is due; returns the answers in the same order."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        begin = time.monotonic()

        async def send(request: Request) -> Answer:
            await asyncio.sleep(max(0.0, begin + request.at - time.monotonic()))
            return await ask(session, engines, request)

        return list(await asyncio.gather(*map(send, requests)))


async def measure_alone(engines: Engines) -> None:
    """Find out how long requests of each service take when nothing else is there."""
    async with aiohttp.ClientSession() as session:
        for service, outputs in OUTPUTS.items():
            chance = random.Random(service)
            took = []
            for _ in range(ALONE + 1):  # the first warms it up
                request = Request(0.0, service, make_prompt(chance), outputs[1])
                took.append((await ask(session, engines, request)).e2e)
            engines.alone[service] = sorted(took[1:])[ALONE // 2]


async def ask(session: aiohttp.ClientSession, engines: Engines, request: Request) -> Answer:
    """Send one request and read its stream."""
    body = {
        "model": request.service,
        "prompt": list(request.prompt),
        "max_tokens": request.output,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
    }
    begin, first = time.monotonic(), 0.0
    tokens: list[int] = []
    url = f"{engines.servers[request.service].url}/v1/completions"
    async with session.post(url, json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.monotonic() - begin
            tokens += json.loads(line[6:])["choices"][0]["token_ids"] or []
    if len(tokens) != request.output:
        raise RuntimeError(f"{len(tokens)} tokens came of {request.output}")
    return Answer(request.service, first, time.monotonic() - begin, tuple(tokens))
