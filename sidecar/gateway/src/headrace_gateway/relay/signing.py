"""The gateway's key, with which it signs what engines shall resume."""

from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa


class Signer:
    """Signs with the key in the file at `path`, whatever it is at the time: a Secret may change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, message: bytes) -> bytes:
        """Sign as `headrace_engine.contracts.resume_arguments` says. Raises OSError or ValueError."""
        key = serialization.load_pem_private_key(self._path.read_bytes(), None)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise ValueError(f"{self._path} is no RSA key")  # noqa: TRY004  as what is no key at all
        return key.sign(message, padding.PKCS1v15(), hashes.SHA256())
