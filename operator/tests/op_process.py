"""The operator as its own process, for tests on a real API server."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import op_release
from op_kube import eventually

from e2e import ports

SIDECAR_IMAGE = "example/sidecar:1"


def _account(apiserver):
    """The kubeconfig of the chart's account for the operator; the administrator's where there is none."""
    own = op_release.kubeconfig(apiserver)
    return own if own.exists() else apiserver.kubeconfig


class Operator:
    """The operator as its own process, with a log; its long waits divided by `hurry`."""

    def __init__(self, apiserver, log, image=SIDECAR_IMAGE, hurry=1.0, **environment):
        (self.port,) = ports.free(1)
        settings = {
            "KUBECONFIG": str(_account(apiserver)),
            "HEADRACE_SIDECAR_IMAGE": image,
            "HEADRACE_METRICS_PORT": str(self.port),
            "HEADRACE_GATEWAY_URL": "http://gateway.example",
            "HEADRACE_SYSTEM_NAMESPACE": "headrace-system",
            "HEADRACE_LEASE": f"operator-{self.port}",  # of its own, unless the test shares one
        }
        self.log = log
        program = ["-m", "headrace_operator"]
        if hurry != 1.0:
            program, settings["HEADRACE_HURRY"] = [str(Path(__file__).parent / "op_hurried.py")], str(hurry)
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *program],
                env={**os.environ, **settings, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self):
        """Until it watches."""
        eventually(self._ready)
        return self

    def _ready(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def metric(self, name, **labels):
        """Sum of a metric's samples that have these labels."""
        text = httpx.get(f"http://127.0.0.1:{self.port}/metrics", trust_env=False).text
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(part in line for part in wanted))

    def stop(self):
        self.process.terminate()
        assert self.process.wait(120) is not None
