"""Configuration files of the node's own programs: containerd, its network plugins, kubelet and CoreDNS.

What is unusual here is for machines with little privilege: `restrict_oom_score_adj` where the root user
may not lower an OOM score, cgroup v1 accepted, and nothing that writes sysctls of the whole machine. Pod
traffic is routed over one veth pair for each pod (no bridge), so that connection tracking sees every
packet and a Service is reachable from pods of its own node whatever the bridge netfilter setting.
NetworkPolicies are not enforced.
"""

import json
import os
from pathlib import Path

from . import components, packages

NODE_NAME = "node0"
NODE_ADDRESS = "10.88.0.1"
API_PORT = 6443
PODS = "10.244.0.0/16"
DNS_SERVICE = "10.96.0.10"
PAUSE_IMAGE = "localhost/headrace/pause:dev"

_CONTAINERD = """\
version = 2
root = "{state}/containerd"
state = "/run/containerd"
[grpc]
  address = "{state}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{state}/cni"
"""

_COREDNS = """\
.:53 {{
  bind {address}
  errors
  health {address}:8053
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    ttl 5
  }}
  cache 5
}}
"""


def write(state: Path, kubeconfig: Path, authority: Path, cgroup: str, memory: int) -> None:
    """Write every file into the state folder; all pods together have `memory` bytes."""
    (state / "cni").mkdir()
    (state / "cni" / "10-headrace.conflist").write_text(json.dumps(_network()))
    (state / "containerd.toml").write_text(
        _CONTAINERD.format(state=state, pause=PAUSE_IMAGE, plugins=packages.tree() / "usr/lib/cni")
    )
    (state / "Corefile").write_text(_COREDNS.format(address=NODE_ADDRESS, kubeconfig=kubeconfig))
    (state / "kubelet.json").write_text(json.dumps(_kubelet(state, authority, cgroup, memory)))
    (state / "resolv.conf").write_text(f"nameserver {NODE_ADDRESS}\nsearch svc.cluster.local\n")
    (state / "no-resolv.conf").write_text("")


def dns_objects() -> list[dict[str, object]]:
    """Give the Service `kube-dns` and its endpoint: CoreDNS runs beside the kubelet, not in a pod."""
    metadata = {"name": "kube-dns", "namespace": "kube-system"}
    ports = [{"name": protocol.lower(), "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": DNS_SERVICE, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NODE_ADDRESS], "conditions": {"ready": True}}],
            "ports": ports,
        },
    ]


def _network() -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "headrace",
        "plugins": [
            {"type": "ptp", "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _kubelet(state: Path, authority: Path, cgroup: str, memory: int) -> dict[str, object]:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failSwapOn": False,
        "failCgroupV1": False,
        "containerRuntimeEndpoint": f"unix://{state}/containerd.sock",
        "podLogsDir": f"{state}/pod-logs",
        "volumePluginDir": str(components.Files(state).volume_plugins),
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{state}/no-resolv.conf",
        "maxPods": 200,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "enforceNodeAllocatable": [],
        "systemReserved": {"memory": str(max(0, machine - memory))},  # so that the scheduler knows, too
        "localStorageCapacityIsolation": False,
    }
