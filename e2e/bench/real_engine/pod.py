"""What an engine pod of the demo runs, on loopback: the install command, the sidecar, and the real vLLM.

vLLM gets the arguments and variables of the demo's sample service, those of its image, and a path on which
there is no compiler, as there is none in the image. The model is the demo's.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.bench.gateway.testbed import HOST, Testbed, TestbedError
from e2e.bench.real_engine.vllm_server import answers
from e2e.cluster import model
from e2e.cluster.places import REPOSITORY
from headrace_engine.contracts import EngineStatus, LoadReport, PolicyDocument, decode
from headrace_engine.control.policy_file import write_policy

SAMPLE = REPOSITORY / "e2e/demo/samples/chat.yaml"
IMAGE = REPOSITORY / "e2e/cluster/images/vllm-cpu.Dockerfile"
PLUGINS = REPOSITORY / "e2e/cluster/images/vllm_cpu"  # what the image adds to vLLM
START_SECONDS = 600.0  # half a minute alone
APPLY_SECONDS = 60.0
COMPILER = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|cpp|c89|c99|tcc|icx|icpx)(-[\d.]+)?")


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod beside a testbed's Envoy and picker; its processes end with the testbed."""

    testbed: Testbed
    name: str  # of the model, as clients call it

    @property
    def folder(self) -> Path:
        """What the pod's containers mount."""
        return self.testbed.folder / "pod"

    @property
    def gateway(self) -> str:
        """Where the testbed's Envoy listens."""
        return f"http://{HOST}:{self.testbed.ports['gateway']}"

    def start(self, policy: PolicyDocument) -> None:
        """Start everything; raises TestbedError if vLLM does not serve in time."""
        for folder in (self.folder / "headrace", self.folder / "config", self.folder / "home"):
            folder.mkdir(parents=True)
        without_compilers(self.folder / "bin")
        model.write(self.folder / "model")
        write_policy(self.folder / "config/policy.json", policy)
        sidecar = [sys.executable, "-m", "headrace_sidecar.engine"]
        environment = {**os.environ, **self._sidecar_environment()}
        subprocess.run([*sidecar, "install"], check=True, env=environment)
        self.testbed.start("sidecar", [*sidecar, "serve"], environment=environment)
        self.start_engine()

    def start_engine(self) -> None:
        """Start vLLM, and wait until it serves; raises TestbedError."""
        process = self.testbed.start(
            "engine",
            engine_command(self.folder / "model", self.name, self.testbed.ports["engine"]),
            environment=self._engine_environment(),
        )
        deadline = time.monotonic() + START_SECONDS
        while not answers(f"http://{HOST}:{self.testbed.ports['engine']}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise TestbedError(f"vLLM did not start:\n{self.last_words()}")
            time.sleep(0.2)

    def alive(self) -> bool:
        """Tell whether vLLM's process runs."""
        return self.testbed.processes["engine"].poll() is None

    def apply(self, policy: PolicyDocument) -> None:
        """Change the policy, and wait until the engine has it; raises TestbedError."""
        write_policy(self.folder / "config/policy.json", policy)
        deadline = time.monotonic() + APPLY_SECONDS
        while self.status().policy.applied_hash != policy.hash:
            if time.monotonic() > deadline:
                raise TestbedError(f"{policy.policy} was not applied: {self.status()}")
            time.sleep(0.05)

    def status(self) -> EngineStatus:
        """Return what the sidecar says of its engine."""
        return decode(EngineStatus, self._asked("/status"))

    def load(self) -> LoadReport:
        """Read the engine's load from the sidecar."""
        return decode(LoadReport, self._asked("/load"))

    def last_words(self, size: int = 3000) -> str:
        """Return the end of vLLM's log."""
        return (self.testbed.folder / "engine.log").read_text(errors="replace")[-size:]

    def _asked(self, path: str) -> Any:
        with urllib.request.urlopen(
            f"http://{HOST}:{self.testbed.ports['sidecar']}{path}", timeout=10
        ) as answer:
            return json.loads(answer.read())

    def _sidecar_environment(self) -> dict[str, str]:
        return {
            "HEADRACE_DIR": str(self.folder / "headrace"),
            "HEADRACE_POLICY_DIR": str(self.folder / "config"),
            "HEADRACE_PORT": str(self.testbed.ports["sidecar"]),
            "HEADRACE_ENGINE_URL": f"http://{HOST}:{self.testbed.ports['engine']}",
        }

    def _engine_environment(self) -> dict[str, str]:
        return {
            **image_environment(IMAGE.read_text()),
            **{each["name"]: each["value"] for each in sample()["engine"]["env"]},
            "PATH": str(self.folder / "bin"),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "home"),  # compiled kernels of other runs are kept in /tmp
            "PYTHONPATH": f"{self.folder}/headrace/plugin:{PLUGINS}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HEADRACE_DIR": str(self.folder / "headrace"),
        }


def sample() -> Mapping[str, Any]:
    """Return the spec of the demo's service."""
    spec: Mapping[str, Any] = yaml.safe_load(SAMPLE.read_text())["spec"]
    return spec


def engine_command(model_folder: Path, name: str, port: int) -> list[str]:
    """Return how the demo's engine is started."""
    spec = sample()
    settings = {
        "--model": model_folder,
        "--served-model-name": name,
        "--host": HOST,
        "--port": port,
        "--max-model-len": spec["model"].get("maxModelLen") or spec["engine"]["maxModelLen"],
        "--block-size": spec["engine"]["blockSize"],
    }
    given = [f"{option}={value}" for option, value in settings.items()]
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *given, *spec["engine"]["args"]]


def image_environment(dockerfile: str) -> dict[str, str]:
    """Return the variables that an image sets."""
    words = [
        word for line in dockerfile.splitlines() if line.startswith("ENV ") for word in shlex.split(line[4:])
    ]
    return dict(word.split("=", 1) for word in words)


def without_compilers(folder: Path) -> None:
    """Fill the folder with links to all programs on the path but compilers."""
    folder.mkdir(parents=True)
    for program in _programs():
        if not COMPILER.fullmatch(program.name) and not (folder / program.name).exists():
            (folder / program.name).symlink_to(program)


def _programs() -> Iterator[Path]:
    for place in os.get_exec_path():
        if Path(place).is_dir():
            yield from (each for each in Path(place).iterdir() if os.access(each, os.X_OK))
