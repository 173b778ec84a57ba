"""One local cluster: up, down, and how to reach it.

    cluster = Cluster()
    cluster.up()            # does nothing if it is healthy; else clears what is left of it and starts anew
    cluster.kubectl("get", "pods")
    cluster.down()

It lives in its own pid, mount and network namespaces. On the machine itself there are only its processes, its
control groups and its state folder, and `down` removes all three.
"""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import binaries, components, images, node_files, packages, remains, volumes
from .places import REPOSITORY, STATE, cache
from .progress import detach, run, say, step
from .ready import is_ready, log_tails

_START_SECONDS = 300.0
_APPEAR_SECONDS = 15.0  # until the first process has its command line
_NAMESPACES = ("--pid", "--mount", "--net", "--ipc", "--uts")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster by its name, and how much memory its pods share; several can be up at once."""

    name: str = "headrace"
    memory_gib: int = field(default_factory=lambda: int(os.environ.get("CLUSTER_MEMORY_GIB", "8")))

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
        """Bring the cluster up if it is not.

        Raises TimeoutError or RuntimeError with the ends of the logs if it will not come.
        """
        with self._alone():
            if self.healthy():
                say(f"cluster {self.name} is up")
            else:
                self._remove()
                with step(f"starting the cluster {self.name}"):
                    self._prepare()
                    self._start()
                    self._wait()
            self.apply(*node_files.dns_objects())
            # No pod can be made in a namespace that does not have it yet.
            self.kubectl("wait", "--for=create", "serviceaccount/default", f"--timeout={_START_SECONDS:.0f}s")

    def down(self) -> None:
        """Remove every trace of the cluster but the cache."""
        with self._alone():
            self._remove()

    def kubectl_command(self, *arguments: str) -> list[str]:
        """Give the command that runs kubectl against the cluster."""
        return [str(binaries.path("kube")), "kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and give its output; raises RuntimeError with its error."""
        command = self.kubectl_command(*arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: dict[str, object]) -> None:
        """Create the objects, or change those that exist."""
        if not objects:
            return
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)

    def enter(self) -> list[str]:
        """Give the command prefix that runs a program inside the cluster's namespaces."""
        return [*self.network(), "--pid", "--mount", f"--wd={REPOSITORY}"]

    def network(self) -> list[str]:
        """Give the command prefix that runs a program in the cluster's network, and else as it is."""
        first = remains.first_process(self.state)
        if first is None:
            raise RuntimeError(f"cluster {self.name} is not up: run `python -m e2e.cluster up`")
        return ["nsenter", "--target", str(first), "--net"]

    def kill(self, component: str) -> None:
        """Kill one of the node's own programs (`kubelet`, `kube-apiserver`, …); it starts again."""
        pid = (self.state / "pids" / component).read_text()
        run([*self.enter(), "kill", "-KILL", pid])

    @contextlib.contextmanager
    def held(self, component: str) -> Iterator[None]:
        """Kill one of the node's own programs, and keep it from starting before the block ends."""
        mark = self.state / "held" / component
        mark.touch()
        try:
            self.kill(component)
            yield
        finally:
            mark.unlink()

    def kill_container(self, identifier: str) -> None:
        """End a container's processes with SIGKILL; `identifier` is containerd's, from the pod's status."""
        daemon = str(self.state / "containerd.sock")
        task = ["--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", identifier]
        run([str(packages.path("ctr")), "--address", daemon, *task])

    def load_images(self) -> None:
        """Build the images that have changed and load those that this cluster has not."""
        images.load(images.build(), self.state)

    def volumes(self, namespace: str) -> None:
        """Make the claims `vllm-runtime` and `models` in a namespace, and the namespace if need be.

        Those that are there stay: what a volume points to cannot change while pods use it.
        """
        for manifest in volumes.objects(namespace):
            try:
                self.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
            except RuntimeError as error:
                if "AlreadyExists" not in str(error):
                    raise

    def expose(self, namespace: str, service: str, port: int) -> str:
        """Give a URL on the machine's loopback that reaches a Service's port as long as the cluster is up.

        The same Service has the same URL at every call, also after it was deleted and made again.
        """
        host = f"{service}.{namespace}.svc.cluster.local"
        record = self.state / "exposed" / f"{host}:{port}"
        record.parent.mkdir(exist_ok=True)
        listen = int(record.read_text()) if record.exists() else 0
        if not listen or not _listens(listen):
            forward = ["-m", "e2e.cluster.forward", host, str(port)]
            listen = self._spawn(self.enter(), forward, self.state / "logs" / "exposed.log", listen)
            record.write_text(str(listen))
        return f"http://127.0.0.1:{listen}"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for another `up` or `down` of this cluster to end; one that was killed holds no lock."""
        cache().mkdir(parents=True, exist_ok=True)
        with (cache() / f".{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _remove(self) -> None:
        if self.state.exists() or remains.node_pids(self.state):
            with step(f"removing what is left of the cluster {self.name}"):
                remains.remove(self.state, self.cgroup)
        else:
            remains.remove_cgroups(self.cgroup)

    def _node_ready(self) -> bool:
        condition = '{.status.conditions[?(@.type=="Ready")].status}'
        try:
            return self.kubectl("get", "node", node_files.NODE_NAME, "-o", f"jsonpath={condition}") == "True"
        except RuntimeError:
            return False

    def _prepare(self) -> None:
        self.state.mkdir(mode=0o700, parents=True)
        files = components.write_files(self.state, node_files.NODE_ADDRESS, node_files.API_PORT)
        node_files.write(self.state, files.kubeconfig, files.authority, self.cgroup, self.memory_gib << 30)
        for root in remains.cgroup_roots(self.cgroup):
            root.mkdir()
            remains.limit_memory(root, self.memory_gib << 30)

    def _start(self) -> None:
        prefix = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
        generation = str(time.time_ns())
        (self.state / "generation").write_text(generation)
        command = [*remains.node_command(self.state), generation]
        port = self._spawn(prefix, command, self.state / "node.log")
        components.write_kubeconfig(
            components.Files(self.state), self.kubeconfig, f"https://127.0.0.1:{port}"
        )

    def _spawn(self, prefix: Sequence[str], arguments: Sequence[str], log: Path, port: int = 0) -> int:
        """Start Python behind a command prefix, with a listening loopback socket as its last argument.

        Gives the socket's port; 0 asks for a free one.
        """
        with socket.create_server(("127.0.0.1", port)) as listener, log.open("ab") as output:
            descriptor = listener.fileno()
            command = [*prefix, sys.executable, *arguments, str(descriptor)]
            detach(command, output, cwd=REPOSITORY, pass_fds=[descriptor])
            return int(listener.getsockname()[1])

    def _wait(self) -> None:
        appear, deadline = time.monotonic() + _APPEAR_SECONDS, time.monotonic() + _START_SECONDS
        while not self.healthy():
            if time.monotonic() > appear and not remains.node_pids(self.state):
                raise RuntimeError(f"the cluster ended at start:\n{(self.state / 'node.log').read_text()}")
            if time.monotonic() > deadline:
                logs = log_tails(self.state / "logs")
                raise TimeoutError(f"the node was not ready in {_START_SECONDS:.0f} s:\n{logs}")
            time.sleep(0.2)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
