"""One local cluster: up, down, and how to reach it.

    cluster = Cluster()
    cluster.up()            # does nothing if it is healthy; else clears what is left of it and starts anew
    cluster.kubectl("get", "pods")
    cluster.down()

It lives in its own pid, mount and network namespaces. On the machine itself there are only its processes, its
control groups and its state folder, and `down` removes all three.
"""

import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from . import binaries, components, node_files, remains
from .places import REPOSITORY, STATE
from .progress import say, step
from .ready import is_ready, log_tails

_START_SECONDS = 120.0
_NAMESPACES = ("--pid", "--mount", "--net", "--ipc", "--uts")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster by its name; several can be up at once."""

    name: str = "headrace"

    @property
    def state(self) -> Path:
        """All files of the cluster that `down` removes."""
        return STATE / self.name

    @property
    def cgroup(self) -> str:
        """The control group, in every hierarchy, of all pods."""
        return f"headrace-{self.name}"

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig, for use on the machine."""
        return self.state / "outside.kubeconfig"

    @property
    def url(self) -> str:
        """The API server's address on the machine's loopback."""
        server = json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        return str(server)

    def healthy(self) -> bool:
        """Tell whether the API server answers and the node is ready."""
        if not self.kubeconfig.exists() or not remains.node_pids(self.state):
            return False
        return is_ready(components.Files(self.state), self.url) and self._node_ready()

    def up(self) -> None:
        """Bring the cluster up if it is not; raises TimeoutError with the ends of the logs if it will not come."""
        if self.healthy():
            say(f"cluster {self.name} is up")
            return
        self.down()
        with step(f"starting the cluster {self.name}"):
            self._prepare()
            self._start()
            self._wait()
        self.apply(*node_files.dns_objects())

    def down(self) -> None:
        """Remove every trace of the cluster but the cache."""
        if self.state.exists() or remains.node_pids(self.state):
            with step(f"removing the cluster {self.name}"):
                remains.remove(self.state, self.cgroup)
        else:
            remains.remove_cgroups(self.cgroup)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and give its output; raises RuntimeError with its error."""
        done = subprocess.run(
            [str(binaries.path("kube")), "kubectl", "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: dict[str, object]) -> None:
        """Create or change objects."""
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)

    def enter(self) -> list[str]:
        """Give the command prefix that runs a program inside the cluster's namespaces."""
        pids = remains.node_pids(self.state)
        if not pids:
            raise RuntimeError(f"cluster {self.name} is not up")
        return ["nsenter", "--target", str(pids[-1]), "--pid", "--net", "--mount", f"--wd={Path.cwd()}"]

    def _node_ready(self) -> bool:
        condition = '{.status.conditions[?(@.type=="Ready")].status}'
        try:
            return self.kubectl("get", "node", node_files.NODE_NAME, "-o", f"jsonpath={condition}") == "True"
        except RuntimeError:
            return False

    def _prepare(self) -> None:
        self.state.mkdir(parents=True)
        files = components.write_files(self.state, node_files.NODE_ADDRESS, node_files.API_PORT)
        node_files.write(self.state, files.kubeconfig, files.authority, self.cgroup)
        for root in remains.cgroup_roots(self.cgroup):
            root.mkdir()

    def _start(self) -> None:
        files = components.Files(self.state)
        with socket.create_server(("127.0.0.1", 0)) as listener, (self.state / "node.log").open("wb") as log:
            descriptor = listener.fileno()
            node = [sys.executable, *remains.node_command(self.state), str(descriptor)]
            subprocess.Popen(
                ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc", *node],
                cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[descriptor], start_new_session=True,
            )  # fmt: skip
            port = listener.getsockname()[1]
        components.write_kubeconfig(files, self.kubeconfig, f"https://127.0.0.1:{port}")

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self.healthy():
            if not remains.node_pids(self.state):
                raise RuntimeError(f"the cluster ended at start:\n{(self.state / 'node.log').read_text()}")
            if time.monotonic() > deadline:
                logs = log_tails(self.state / "logs")
                raise TimeoutError(f"the node was not ready in {_START_SECONDS:.0f} s:\n{logs}")
            time.sleep(0.2)
