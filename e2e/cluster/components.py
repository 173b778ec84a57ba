"""The command line of each control-plane component, and the files that they read.

One definition serves both users: the bare control plane that tests start on loopback ports, and the
full cluster in its own network namespace.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from . import pki
from .places import binary

SERVICES = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
ADMIN_TOKEN = "headrace-local-admin"  # reachable on loopback only


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one control plane, all in `folder`."""

    folder: Path
    authority: Path
    server: pki.Pair
    admin: pki.Pair
    kubeconfig: Path
    logs: Path


def write_files(folder: Path, address: str, port: int) -> Files:
    """Write keys, certificates, tokens and the admin's kubeconfig of an API server at `address`:`port`."""
    secrets = folder / "pki"
    authority = pki.Authority(secrets)
    pki.write_key(secrets / "sa.key", secrets / "sa.pub")
    services = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names = ["localhost", *services, "kubernetes.default.svc.cluster.local"]
    server = authority.issue(
        "apiserver", "kube-apiserver", hosts=[*names, "127.0.0.1", KUBERNETES_SERVICE, address]
    )
    admin = authority.issue("admin", "admin", group="system:masters")
    (secrets / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(pki.kubeconfig(f"https://{address}:{port}", authority.pair.certificate, admin))
    )
    logs = folder / "logs"
    logs.mkdir()
    return Files(folder, authority.pair.certificate, server, admin, kubeconfig, logs)


def etcd(files: Files, port: int, peer_port: int) -> list[str]:
    """Give etcd's command; it does not sync to disk, for no cluster here outlives its machine."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        "etcd",
        f"--data-dir={files.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]


def apiserver(files: Files, address: str, port: int, etcd_port: int) -> list[str]:
    """Give the API server's command."""
    secrets = files.folder / "pki"
    return [
        str(binary("kube")),
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        f"--bind-address={address if address == '127.0.0.1' else '0.0.0.0'}",
        f"--advertise-address={address}",
        "--endpoint-reconciler-type=none" if address == "127.0.0.1" else "--endpoint-reconciler-type=lease",
        f"--tls-cert-file={files.server.certificate}",
        f"--tls-private-key-file={files.server.key}",
        f"--client-ca-file={files.authority}",
        f"--token-auth-file={secrets / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={SERVICES}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={secrets / 'sa.pub'}",
        f"--service-account-signing-key-file={secrets / 'sa.key'}",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={files.admin.certificate}",
        f"--kubelet-client-key={files.admin.key}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controller_manager(files: Files, *flags: str) -> list[str]:
    """Give the controller manager's command (it serves nothing unless a flag says so)."""
    return [
        str(binary("kube")),
        "kube-controller-manager",
        f"--kubeconfig={files.kubeconfig}",
        f"--service-account-private-key-file={files.folder / 'pki' / 'sa.key'}",
        f"--root-ca-file={files.authority}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        *flags,
    ]
