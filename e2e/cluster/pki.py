"""The cluster's certificate authority, its certificates and keys, and kubeconfig files.

Elliptic-curve keys: made in milliseconds, where RSA takes a second for each cluster that a test starts.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Pair:
    """A private key and its certificate, as PEM files."""

    key: Path
    certificate: Path


def pair(folder: Path, file: str) -> Pair:
    """Give the pair whose files are FILE.key and FILE.crt."""
    return Pair(folder / f"{file}.key", folder / f"{file}.crt")


def write_key(private: Path, public: Path) -> None:
    """Write a key pair without a certificate: what service account tokens are signed with."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(private, _pem(key))
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody but its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


class Authority:
    """A self-signed certificate authority whose files are in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("headrace-local-cluster")
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        _write(pair(folder, "ca"), self._key, certificate)

    def issue(self, file: str, name: str, *, group: str | None = None, hosts: Sequence[str] = ()) -> None:
        """Write FILE.key and FILE.crt for a user (and group), serving under `hosts` (names or addresses)."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(name, group), self._name, key.public_key())
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_host, hosts)), critical=False)
        _write(pair(self._folder, file), key, builder.sign(self._key, hashes.SHA256()))


def kubeconfig(server: str, authority: Path, user: Pair) -> dict[str, object]:
    """Give a kubeconfig (JSON, which is YAML) for one user of the API server at `server`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "headrace", "cluster": {"server": server, "certificate-authority": str(authority)}}
        ],
        "users": [
            {
                "name": "headrace",
                "user": {"client-certificate": str(user.certificate), "client-key": str(user.key)},
            }
        ],
        "contexts": [{"name": "headrace", "context": {"cluster": "headrace", "user": "headrace"}}],
        "current-context": "headrace",
    }


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
    )


def _name(common: str, organization: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(files: Pair, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    write_private(files.key, _pem(key))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
