"""The first process in the cluster's own namespaces: `python -m e2e.cluster.node STATE GENERATION FD`.

It gives the namespaces a network and their own /run, /var/log and /var/lib, starts every component, starts
one again that has ended, and reaps what containers leave behind. The state folder has each one's pid, as it
is in here, in `pids/NAME`; while there is a file `held/NAME`, that one is not started again. As all of the
cluster lives under this process, its end is the end of every process, mount, interface and rule of the
cluster: the kernel sees to it.

GENERATION is what the state folder's file of that name says; a process whose bring-up was killed, and
whose folder has since been made anew, ends. FD is a listening socket that was made on the machine's
loopback: through it, and through nothing else, the API server is reached from outside.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from . import binaries, components, node_files, packages
from .places import REPOSITORY
from .ready import wait_ready

_RESTART_SECONDS = 1.0
_PIDS, _HELD = "pids", "held"
# What a kubelet sets for the whole machine: a fault of the kernel restarts it, memory is promised that is not
# there.
_SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
_FIRST = ("etcd", "containerd", "kube-apiserver", "forward")  # the others need the API server


def main() -> None:
    """Set up the namespaces and tend the components until killed."""
    state, generation, listener = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if (state / "generation").read_text() != generation:
        sys.exit(f"{state} belongs to another start by now")
    files = components.Files(state)
    os.environ.update(packages.environment())
    _mounts(state)
    _network()
    _tend(files, _commands(files, listener), listener)


def _mounts(state: Path) -> None:
    """Hide the machine's own runtime folders and settings, and keep the state folder visible where it was.

    With -n, as mount else makes /run/mount for its notes.
    """
    _run("mount -n --make-rshared /")
    _run("mount -n -t tmpfs tmpfs /run")
    aside = Path("/run/state")
    aside.mkdir()
    _run(f"mount -n --bind {state} {aside}")
    _run("mount -n -t tmpfs tmpfs /var/lib")
    _run("mount -n -t tmpfs tmpfs /var/log")
    state.mkdir(parents=True)
    _run(f"mount -n --bind {aside} {state}")
    _own_etc(state)
    _own_sysctls(state)


def _own_etc(state: Path) -> None:
    """Have an /etc whose changes nobody else sees, with the cluster's DNS, be resolv.conf a link."""
    upper, work = Path("/run/etc"), Path("/run/etc.work")
    for folder in (upper, work):
        folder.mkdir(mode=0o755)
    shutil.copy(state / "resolv.conf", upper)
    _run(f"mount -n -t overlay overlay -o lowerdir=/etc,upperdir={upper},workdir={work} /etc")


def _own_sysctls(state: Path) -> None:
    """Put copies over the machine's settings that a kubelet changes: it reads and writes the copies."""
    for name in _SYSCTLS:
        setting, copy = Path("/proc/sys", name), state / "sysctls" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(setting.read_text())
        _run(f"mount -n --bind {copy} {setting}")


def _network() -> None:
    """Give the node an address on an interface of its own, and a route that Service addresses match."""
    _run("ip link set lo up")
    _run("ip link add node0 type bridge")
    _run(f"ip address add {node_files.NODE_ADDRESS}/32 dev node0")
    _run("ip link set node0 up")
    _run(f"ip route add {components.SERVICES} dev node0 src {node_files.NODE_ADDRESS}")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _commands(files: components.Files, listener: int) -> dict[str, list[str]]:
    state = files.folder
    node, port = node_files.NODE_ADDRESS, node_files.API_PORT
    kube, config = str(binaries.path("kube")), f"--kubeconfig={files.kubeconfig}"
    name = f"--hostname-override={node_files.NODE_NAME}"
    return {
        "etcd": components.etcd(files, 2379, 2380),
        "containerd": ["containerd", f"--config={state}/containerd.toml"],
        "kube-apiserver": components.apiserver(files, node, port, 2379),
        "forward": [sys.executable, "-m", "e2e.cluster.forward", node, str(port), str(listener)],
        # As installers have it: who lost its lease in an outage ends, and does not take all nodes for dead.
        "kube-controller-manager": components.controller_manager(files, "--leader-elect=true"),
        "kube-scheduler": [kube, "kube-scheduler", config, "--leader-elect=false"],
        "kubelet": [
            kube, "kubelet", config, name, f"--config={state}/kubelet.json",
            f"--root-dir={state}/kubelet", f"--node-ip={node}",
        ],
        "kube-proxy": [
            kube, "kube-proxy", config, name, "--proxy-mode=iptables", f"--cluster-cidr={node_files.PODS}",
            "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        ],
        "coredns": [str(binaries.path("coredns")), "-conf", f"{state}/Corefile"],
    }  # fmt: skip


def _tend(files: components.Files, commands: dict[str, list[str]], listener: int) -> None:
    """Start all, and each again a second after it ends; others' children are only reaped."""
    running: dict[int, str] = {}

    def start(names: Iterable[str]) -> None:
        for name in names:
            command, mark = commands[name], files.folder / _HELD / name
            if mark.exists():
                command = [
                    "sh",
                    "-c",
                    'while [ -e "$0" ]; do sleep 0.2; done; exec "$@"',
                    str(mark),
                    *command,
                ]
            with (files.logs / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    command, stdout=log, stderr=log, pass_fds=[listener], cwd=REPOSITORY
                )
            running[process.pid] = name
            (files.folder / _PIDS / name).write_text(str(process.pid))

    for folder in (_PIDS, _HELD):
        (files.folder / folder).mkdir(exist_ok=True)
    start(_FIRST)
    wait_ready(files, f"https://{node_files.NODE_ADDRESS}:{node_files.API_PORT}")
    start(name for name in commands if name not in _FIRST)
    while True:
        pid, status = os.wait()
        name = running.pop(pid, None)
        if name is not None:
            print(f"{name} ended ({os.waitstatus_to_exitcode(status)}), starting it again", flush=True)
            time.sleep(_RESTART_SECONDS)
            start([name])


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main()
