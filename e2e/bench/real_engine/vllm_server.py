"""A vLLM server on loopback, stock or with the plugin, without a pod around it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e import ports
from e2e.bench.gateway.testbed import HOST
from e2e.cluster import model as cluster_model
from headrace_engine.contracts import PolicyDocument
from headrace_engine.control import paths
from headrace_engine.control.board import BoardReader
from headrace_engine.control.policy_file import write_policy
from headrace_sidecar.install import install_plugin

START_SECONDS = 900.0  # a busy machine takes minutes to import vLLM
APPLY_SECONDS = 60.0
END_SECONDS = 60.0
POLL = 0.2


class ServerError(RuntimeError):
    """vLLM does not start, or does not do what it is told; the message has the end of its log."""


@dataclass(slots=True)
class Server:
    """One server's process and files."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    address: str = HOST

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.address}:{self.port}"

    @property
    def shared(self) -> Path:
        """The folder that the plugin shares with a sidecar."""
        return self.folder / "headrace"

    def wait_ready(self) -> None:
        """Wait until it serves; raises ServerError."""
        deadline = time.monotonic() + START_SECONDS
        while not answers(f"{self.url}/health"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"vLLM did not start:\n{self.last_words()}")
            time.sleep(POLL)

    def apply(self, policy: PolicyDocument) -> None:
        """Change the plugin's policy, and wait until it is in force; raises ServerError."""
        asked = policy.sealed()
        write_policy(paths.policy_path(self.shared), asked)
        board = BoardReader(paths.stats_paths(self.shared).board)
        deadline = time.monotonic() + APPLY_SECONDS
        while (record := board.read()) is None or record.applied_hash != int(asked.hash, 16):
            if time.monotonic() > deadline:
                raise ServerError(f"{policy.policy} was not applied: {record}\n{self.last_words()}")
            time.sleep(POLL)

    def engine_processes(self) -> Iterator[int]:
        """Find the processes behind the API server, which plan and compute."""
        found = {self.process.pid}
        for stat in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda path: int(path.parent.name)):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
            except OSError:  # it ended
                continue
            if parent in found:
                found.add(int(stat.parent.name))
                yield int(stat.parent.name)

    def last_words(self, size: int = 3000) -> str:
        """Return the end of its log."""
        return (self.folder / "vllm.log").read_text(errors="replace")[-size:]

    def kill(self) -> None:
        """End all of its processes without letting them say farewell."""
        for pid in [self.process.pid, *self.engine_processes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def answers(url: str) -> bool:
    """Tell whether a server answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def write_model(folder: Path, shape: Mapping[str, int]) -> None:
    """Write the local cluster's model with other numbers in its configuration: `start` loads no weights."""
    cluster_model.write(folder)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | shape))


def pin(processes: Iterable[int], core: int) -> None:
    """Move all threads of these processes to a core."""
    for process in processes:
        for task in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), {core})


def start(
    folder: Path,
    model: Path,
    name: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    policy: PolicyDocument | None = None,
    address: str = HOST,
    port: int | None = None,
) -> Server:
    """Start vLLM with random weights for `model`; with the plugin if there is a policy.

    It listens at the loopback `address`, on a free port if none is given.

    `name` is what clients call the model; the process gets this one's environment and `environment`.
    """
    folder.mkdir(parents=True)
    inherited = {**os.environ, **environment}
    more = {}
    if policy is not None:
        (folder / "headrace").mkdir()
        install_plugin(folder / "headrace")
        write_policy(paths.policy_path(folder / "headrace"), policy.sealed())
        path = [str(folder / "headrace/plugin"), *filter(None, [inherited.get("PYTHONPATH")])]
        more = {"HEADRACE_DIR": str(folder / "headrace"), "PYTHONPATH": os.pathsep.join(path)}
    port = port or ports.free(1)[0]
    given = {"--model": model, "--served-model-name": name, "--host": address, "--port": port}
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--load-format=dummy"]
    command += [*(f"{option}={value}" for option, value in given.items()), *arguments]
    with (folder / "vllm.log").open("wb") as log:
        process = subprocess.Popen(command, env={**inherited, **more}, stdout=log, stderr=log)
    return Server(folder, port, process, address)
