"""The command line of each control-plane component, and the files that they read.

One definition serves both users: the bare control plane that tests start on loopback ports, and the
full cluster in its own network namespace.
"""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from . import binaries, packages, pki

SERVICES = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"


@dataclass(frozen=True, slots=True)
class Files:
    """Where the files of the control plane in `folder` are."""

    folder: Path

    @property
    def secrets(self) -> Path:
        """Keys, certificates and tokens."""
        return self.folder / "pki"

    @property
    def authority(self) -> Path:
        """The certificate that signed all others."""
        return self.secrets / "ca.crt"

    @property
    def server(self) -> pki.Pair:
        """The API server's certificate."""
        return pki.pair(self.secrets, "apiserver")

    @property
    def admin(self) -> pki.Pair:
        """The certificate of a member of system:masters."""
        return pki.pair(self.secrets, "admin")

    @property
    def etcd(self) -> pki.Pair:
        """The certificate that etcd shows to the API server, and the API server to etcd."""
        return pki.pair(self.secrets, "etcd")

    @property
    def tokens(self) -> Path:
        """The API server's list of bearer tokens: the administrator's alone."""
        return self.secrets / "tokens.csv"

    @property
    def admin_token(self) -> str:
        """The administrator's bearer token, another one for each control plane."""
        return self.tokens.read_text().partition(",")[0]

    @property
    def kubeconfig(self) -> Path:
        """Return the path of the administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def volume_plugins(self) -> Path:
        """An empty folder: without one Kubernetes makes its own under /usr."""
        return self.folder / "volume-plugins"

    @property
    def logs(self) -> Path:
        """One log file for each component."""
        return self.folder / "logs"


def write_files(folder: Path, address: str, port: int) -> Files:
    """Write keys, certificates, tokens and a kubeconfig for the API server at `address`:`port`."""
    files = Files(folder)
    authority = pki.Authority(files.secrets)
    pki.write_key(files.secrets / "sa.key", files.secrets / "sa.pub")
    services = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names = ["localhost", *services, "kubernetes.default.svc.cluster.local"]
    authority.issue("apiserver", "kube-apiserver", hosts=[*names, "127.0.0.1", KUBERNETES_SERVICE, address])
    authority.issue("admin", "admin", group="system:masters")
    authority.issue("etcd", "etcd", hosts=["127.0.0.1"])
    pki.write_private(files.tokens, f'{secrets.token_urlsafe(32)},admin,admin,"system:masters"\n'.encode())
    write_kubeconfig(files, files.kubeconfig, f"https://{address}:{port}")
    files.logs.mkdir()
    return files


def write_kubeconfig(files: Files, path: Path, server: str) -> None:
    """Write a kubeconfig of the admin for the API server at the URL `server`."""
    path.write_text(json.dumps(pki.kubeconfig(server, files.authority, files.admin)))


def etcd(files: Files, port: int, peer_port: int) -> list[str]:
    """Give etcd's command; it does not sync to disk, for no cluster here outlives its machine.

    It answers only who has a certificate of this control plane: whoever writes to etcd is above all rules.
    """
    client, peer = f"https://127.0.0.1:{port}", f"https://127.0.0.1:{peer_port}"
    return [
        str(packages.path("etcd")),
        f"--data-dir={files.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        *(
            flag
            for side in ("", "peer-")
            for flag in (
                f"--{side}cert-file={files.etcd.certificate}",
                f"--{side}key-file={files.etcd.key}",
                f"--{side}trusted-ca-file={files.authority}",
                f"--{side}client-cert-auth",
            )
        ),
    ]


def apiserver(files: Files, address: str, port: int, etcd_port: int) -> list[str]:
    """Give the API server's command."""
    return [
        str(binaries.path("kube")),
        "kube-apiserver",
        f"--etcd-servers=https://127.0.0.1:{etcd_port}",
        f"--etcd-cafile={files.authority}",
        f"--etcd-certfile={files.etcd.certificate}",
        f"--etcd-keyfile={files.etcd.key}",
        f"--secure-port={port}",
        f"--bind-address={address if address == '127.0.0.1' else '0.0.0.0'}",
        f"--advertise-address={address}",
        "--endpoint-reconciler-type=none" if address == "127.0.0.1" else "--endpoint-reconciler-type=lease",
        f"--tls-cert-file={files.server.certificate}",
        f"--tls-private-key-file={files.server.key}",
        f"--client-ca-file={files.authority}",
        f"--token-auth-file={files.tokens}",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={SERVICES}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={files.secrets / 'sa.pub'}",
        f"--service-account-signing-key-file={files.secrets / 'sa.key'}",
        "--allow-privileged=true",
        # ImageVolume is as in Kubernetes 1.35. Debian's etcd cannot tell how far a watch is, which streamed
        # lists need: with them kwok's watches end at once, and its nodes are lost after minutes.
        "--feature-gates=ImageVolume=true,WatchList=false",
        f"--kubelet-client-certificate={files.admin.certificate}",
        f"--kubelet-client-key={files.admin.key}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controller_manager(files: Files, *flags: str) -> list[str]:
    """Give the controller manager's command (it serves nothing unless a flag says so)."""
    return [
        str(binaries.path("kube")),
        "kube-controller-manager",
        f"--kubeconfig={files.kubeconfig}",
        f"--service-account-private-key-file={files.secrets / 'sa.key'}",
        f"--root-ca-file={files.authority}",
        "--use-service-account-credentials=true",
        f"--flex-volume-plugin-dir={files.volume_plugins}",
        "--leader-elect=false",
        *flags,
    ]
