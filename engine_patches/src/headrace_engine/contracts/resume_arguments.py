"""How the gateway asks an engine to go on with a generation that was cut elsewhere.

The request is the client's own. Its `vllm_xargs` have in addition the ids of the output tokens that were
delivered before, and their signature, which only the gateway can make. The answer is the whole one, from its
first token on, as if the engine had generated all of it: the gateway leaves out what the client has. Ids
without a valid signature are not there, for all that an engine does.

Signatures are RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017, section 8.2): an engine needs no secret to check
them, and no library, which its image may not have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RESUME_IDS = "headrace_resume_ids"
SIGNATURE = "headrace_resume_signature"
EXPONENT = 65537
LEAST_BITS = 2048
_DIGEST_INFO = bytes.fromhex("3031300d060960864801650304020105000420")  # RFC 8017, 9.2, note 1: SHA-256


@dataclass(frozen=True, slots=True)
class ResumeKey:
    """Operator → engine: whose signatures an engine of `service`, NAMESPACE/NAME, obeys.

    `modulus` is that of the gateway's public key, in hexadecimal digits; its exponent is 65537.
    Raises ValueError for a key of less than 2048 bits.
    """

    service: str
    modulus: str
    schema: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no key."""
        if int(self.modulus, 16).bit_length() < LEAST_BITS:
            raise ValueError(f"modulus: has fewer than {LEAST_BITS} bits")

    def has_signed(self, message: bytes, signature: str) -> bool:
        """Tell whether `signature`, in hexadecimal digits, is this key's of `message`."""
        modulus = int(self.modulus, 16)
        size = (modulus.bit_length() + 7) // 8
        digest = _DIGEST_INFO + hashlib.sha256(message).digest()
        expected = b"\0\1" + b"\xff" * (size - len(digest) - 3) + b"\0" + digest
        try:
            given = bytes.fromhex(signature)
        except ValueError:
            return False
        number = int.from_bytes(given, "big")
        return (
            len(given) == size
            and number < modulus
            and pow(number, EXPONENT, modulus) == int.from_bytes(expected, "big")
        )


def arguments(sign: Callable[[bytes], bytes], service: str, token_ids: Sequence[int]) -> dict[str, Any]:
    """Return what to add to `vllm_xargs` so that the engines of `service` go on after these tokens."""
    return {RESUME_IDS: list(token_ids), SIGNATURE: sign(_message(service, token_ids)).hex()}


def delivered_tokens(key: ResumeKey, extra_args: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the token ids that the gateway asks to go on after; empty if it does not."""
    ids, signature = extra_args.get(RESUME_IDS), extra_args.get(SIGNATURE)
    if not (isinstance(ids, list) and all(type(each) is int for each in ids) and isinstance(signature, str)):
        return ()
    return tuple(ids) if key.has_signed(_message(key.service, ids), signature) else ()


def _message(service: str, token_ids: Sequence[int]) -> bytes:
    return f"{service} {','.join(map(str, token_ids))}".encode()
