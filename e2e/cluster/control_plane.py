"""A real etcd and API server for tests: on free loopback ports, in a temporary folder, up in a few seconds.

    with ControlPlane() as control_plane:
        ...  # control_plane.kubeconfig, control_plane.url, control_plane.token

There is no node, so pods stay unscheduled. With `controllers` (names as the controller manager knows
them, see `WORKLOADS`) objects that others derive appear: replica sets, endpoint slices, collected
garbage. Every process is ended by its own pid, and the kernel ends it too if the test run is killed.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from e2e import ports

from . import components
from .ready import log_tails, wait_ready

WORKLOADS = (
    "garbage-collector-controller",
    "deployment-controller",
    "replicaset-controller",
    "endpointslice-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "disruption-controller",
    "resourceclaim-controller",
)
_HOST = "127.0.0.1"


class ControlPlane:
    """One control plane; entering starts it, leaving stops it and removes its files."""

    def __init__(self, controllers: Sequence[str] = ()) -> None:
        self._controllers = controllers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.folder = Path()
        self.kubeconfig = Path()
        self.url = ""
        self.token = ""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-control-plane-"))
        etcd_port, peer_port, port = ports.free(3)
        self.url = f"https://{_HOST}:{port}"
        files = components.write_files(self.folder, _HOST, port)
        self.kubeconfig, self.token = files.kubeconfig, files.admin_token
        try:
            self._start(files, "etcd", components.etcd(files, etcd_port, peer_port))
            self._start(files, "kube-apiserver", components.apiserver(files, _HOST, port, etcd_port))
            wait_ready(files, self.url, lambda: self._check_running(files))
            if self._controllers:
                flags = ["--secure-port=0", f"--controllers={','.join(self._controllers)}"]
                self._start(files, "kube-controller-manager", components.controller_manager(files, *flags))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End our processes, last started first, and remove the folder."""
        for process in reversed(self._processes):
            process.kill()  # nothing is kept, so nothing needs an orderly end
            process.wait()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, files: components.Files, name: str, command: list[str]) -> None:
        with (files.logs / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", *command], stdout=log, stderr=subprocess.STDOUT
                )
            )

    def _check_running(self, files: components.Files) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended at start:\n{log_tails(files.logs)}")
