"""The local cluster from the shell: `python -m e2e.cluster COMMAND`.

    up                        programs, images, models and the cluster itself; a second or two if all is there
    down                      leave the machine as it was, but for the cache
    status                    what runs, and where
    kubeconfig                print the path of the admin's kubeconfig
    kubectl ARGUMENT...       run kubectl against the cluster
    exec COMMAND...           run a command where Service addresses and cluster DNS names work
    expose NAMESPACE SERVICE PORT   print a URL on this machine's loopback that reaches the Service
    load-images               build and load the images that have changed
    volumes NAMESPACE         make the claims vllm-runtime and models there
    gpu-nodes N [GPUS] [dra]  have N nodes join whose GPUs (8 each) are not really there
    stand-in-devices N        have the real node offer N devices that are none, for engines on the CPU
    binaries                  build the programs that tests need

Its pods share CLUSTER_MEMORY_GIB of memory (8 by default): one that would take more ends.
With CLUSTER=current it is the cluster that kubectl speaks to: `up` and `down` then do nothing, `kubectl` is
the user's own, and images come from a registry that the user has pushed them to.
"""

import os
import subprocess
import sys
from collections.abc import Callable

from . import bringup, gpu_nodes, stand_in_device
from .cluster import Cluster
from .progress import say


def _commands(cluster: Cluster) -> dict[str, Callable[..., int | None]]:
    def status() -> int:
        up = cluster.healthy()
        say(f"cluster {cluster.name}: {'up' if up else 'not up'}")
        if up:
            say(f"kubeconfig {cluster.kubeconfig}, API server {cluster.url}, state in {cluster.state}")
        return 0 if up else 1

    def execute(*command: str) -> int:
        return subprocess.call([*cluster.enter(), *command])

    def expose(namespace: str, service: str, port: str) -> None:
        print(cluster.expose(namespace, service, int(port)))

    def gpus(nodes: str, *options: str) -> None:
        each = next((int(option) for option in options if option.isdigit()), 8)
        gpu_nodes.join(cluster, int(nodes), each, dra="dra" in options)

    return {
        "up": lambda: bringup.up(cluster),
        "down": cluster.down,
        "status": status,
        "kubeconfig": lambda: print(cluster.kubeconfig),
        "kubectl": lambda *arguments: subprocess.call(cluster.kubectl_command(*arguments)),
        "exec": execute,
        "expose": expose,
        "load-images": cluster.load_images,
        "volumes": cluster.volumes,
        "gpu-nodes": gpus,
        "stand-in-devices": lambda count: stand_in_device.offer(cluster, int(count)),
        "binaries": bringup.programs,
    }


def _current() -> dict[str, Callable[..., int | None]]:
    def nothing() -> None:
        say("CLUSTER=current: the cluster is yours; nothing to bring up or take down")

    return {
        "up": nothing,
        "down": nothing,
        "status": lambda: subprocess.call(["kubectl", "cluster-info"]),
        "kubectl": lambda *arguments: subprocess.call(["kubectl", *arguments]),
        "binaries": bringup.programs,
    }


def main() -> int:
    """Run one command and give its exit code."""
    current = os.environ.get("CLUSTER") == "current"
    commands = _current() if current else _commands(Cluster())
    name, *arguments = sys.argv[1:] or ["help"]
    if name not in commands:
        print(__doc__, file=sys.stderr)
        return 0 if name in {"help", "--help", "-h"} else 2
    try:
        return commands[name](*arguments) or 0
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        print(f"e2e.cluster {name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
