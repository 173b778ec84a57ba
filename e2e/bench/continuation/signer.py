"""The gateway's part in a resumed request: a key of its own, and signatures with it."""

from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from headrace_engine.contracts.resume_arguments import ResumeKey


class Signer:
    """A new private key; called with a message, it signs it."""

    def __init__(self, bits: int = 2048) -> None:
        self._private = rsa.generate_private_key(65537, bits)

    def __call__(self, message: bytes) -> bytes:
        """Sign as `contracts.resume_arguments` says."""
        return self._private.sign(message, padding.PKCS1v15(), hashes.SHA256())

    def write(self, path: Path) -> None:
        """Write the private key, as the gateway has it from its Secret."""
        path.write_bytes(
            self._private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    def key(self, service: str) -> ResumeKey:
        """Return what the engines of `service` are given."""
        return ResumeKey(service, format(self._private.public_key().public_numbers().n, "x"))
