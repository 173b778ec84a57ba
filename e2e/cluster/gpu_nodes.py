"""Nodes with GPUs that are not there, for placement and scale tests.

kwok plays their kubelets: a pod that the real scheduler places on one is reported as running. GPUs are
offered as the extended resource `nvidia.com/gpu`, and with `dra` as devices of a driver `gpu.nvidia.com`
in ResourceSlices with a DeviceClass of that name. Such nodes carry a taint, so that only pods that tolerate
`headrace.dev/fake` come to them and real engines stay on the real node.
"""

from . import binaries, devices
from .cluster import Cluster
from .progress import detach
from .remains import pids_of

LABEL = "headrace.dev/fake"
RESOURCE = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"
_IS_GPU = f"device.attributes['{DRIVER}'].type == 'gpu'"
_MEMORY = "80Gi"
PODS = "10.245.0.0/16"
_STAGES = (  # of kwok's own: what its fake kubelets do, and when
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


def join(cluster: Cluster, nodes: int, gpus: int = 8, *, dra: bool = False) -> None:
    """Have nodes `gpu-0` … join, with so many GPUs each; nodes of an earlier call beyond them leave."""
    binaries.ensure("kwok")
    _start(cluster)
    names = [f"gpu-{index}" for index in range(nodes)]
    there = cluster.kubectl("get", "nodes", "-l", LABEL, "-o", "name").split()
    for name in sorted({node.removeprefix("node/") for node in there} - set(names)):
        cluster.kubectl("delete", "node", name)
        cluster.kubectl("delete", "resourceslice", devices.slice_name(DRIVER, name), "--ignore-not-found")
    cluster.apply(*(_node(name, gpus) for name in names))
    if dra:
        cluster.apply(devices.device_class(DRIVER, _IS_GPU), *(_slice(name, gpus) for name in names))
    if names:
        cluster.kubectl("wait", "--for=condition=Ready", "node", "-l", LABEL, "--timeout=180s")


def _start(cluster: Cluster) -> None:
    """Start kwok inside the cluster's namespaces, with which it ends, unless it runs."""
    kubeconfig = f"--kubeconfig={cluster.state / 'kubeconfig'}"
    command = (str(binaries.path("kwok")), kubeconfig)
    if pids_of(command):
        return
    options = [
        f"--manage-nodes-with-label-selector={LABEL}",
        f"--cidr={PODS}",
        "--node-lease-duration-seconds=40",
    ]
    stages = [
        f"--config={binaries.module_folder('kwok') / 'kustomize' / 'stage' / stage}" for stage in _STAGES
    ]
    with (cluster.state / "logs" / "kwok.log").open("ab") as log:
        detach([*cluster.enter(), *command, *options, *stages], log)


def _node(name: str, gpus: int) -> dict[str, object]:
    size = {"cpu": "128", "memory": "1Ti", "pods": "110", RESOURCE: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {LABEL: "true", "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": LABEL, "effect": "NoSchedule"}]},
        "status": {"allocatable": size, "capacity": size},
    }


def _slice(name: str, gpus: int) -> dict[str, object]:
    listed = [
        {
            "name": f"gpu-{index}",
            "attributes": {"type": {"string": "gpu"}, "index": {"int": index}},
            "capacity": {"memory": {"value": _MEMORY}},
        }
        for index in range(gpus)
    ]
    return devices.resource_slice(DRIVER, name, listed)
