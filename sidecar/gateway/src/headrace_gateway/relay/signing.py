"""The gateway's key, with which it signs what engines shall resume."""

from functools import lru_cache
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa


class Signer:
    """Signs with the key in the file at `path`, whatever it is at the time: a Secret may change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, message: bytes) -> bytes:
        """Sign as `headrace_engine.contracts.resume_arguments` says. Raises OSError or ValueError."""
        key = _read_key(self._path, self._path.read_bytes())
        return key.sign(message, padding.PKCS1v15(), hashes.SHA256())


@lru_cache(maxsize=1)
def _read_key(path: Path, pem: bytes) -> rsa.RSAPrivateKey:
    """Read the key that `path` holds, which takes as long as forty signatures. Raises ValueError."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError(f"{path} is no RSA key")  # noqa: TRY004  as what is no key at all
    return key
