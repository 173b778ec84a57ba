"""How the gateway asks an engine to go on with a generation that was cut elsewhere.

The request is the client's own. Its `vllm_xargs` have in addition the ids of the output tokens that were
delivered before, when they were, and a signature of both, which only the gateway can make. The answer is the
whole one, from its first token on, as if the engine had generated all of it: the gateway leaves out what the
client has. What has no valid signature is not there, for all that an engine does.

Signatures are RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017, section 8.2): an engine needs no secret to check
them, and no library, which its image may not have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

RESUME_IDS = "headrace_resume_ids"
RESUME_TIMES = "headrace_resume_times"  # unix milliseconds: arrival, first and last delivery
SIGNATURE = "headrace_resume_signature"
HAND_BACK = "headrace_hand_back"  # unsigned: whoever sent the request goes on with it elsewhere
HANDED_BACK = "headrace_handed_back"  # the answer's stop reason where an engine did so
NAMES = (RESUME_IDS, RESUME_TIMES, SIGNATURE)
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


@dataclass(frozen=True, slots=True)
class Resumption:
    """How far a generation had come; times are unix seconds, by the gateway's clock."""

    token_ids: tuple[int, ...]  # that were delivered
    arrival: float  # of the request
    first_token: float = 0.0  # when it was delivered; 0 if none was
    last_token: float = 0.0


def arguments(sign: Callable[[bytes], bytes], service: str, resumption: Resumption) -> dict[str, Any]:
    """Return what to add to `vllm_xargs` so that the engines of `service` go on from there."""
    ids = list(resumption.token_ids)
    seconds = (resumption.arrival, resumption.first_token, resumption.last_token)
    times = [round(each * 1000) for each in seconds]
    return {RESUME_IDS: ids, RESUME_TIMES: times, SIGNATURE: sign(_message(service, ids, times)).hex()}


def read_resumption(key: ResumeKey, extra_args: Mapping[str, Any]) -> Resumption | None:
    """Return what the gateway asks to go on from; None if it does not."""
    ids, times, signature = (extra_args.get(name) for name in NAMES)
    if not (_are_integers(ids) and _are_integers(times) and isinstance(signature, str)):
        return None
    if not key.has_signed(_message(key.service, ids, times), signature):
        return None
    arrival, first, last = (each / 1000 for each in times)
    return Resumption(tuple(ids), arrival, first, last)


def _are_integers(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int for each in value)


def _message(service: str, token_ids: Sequence[int], times: Sequence[int]) -> bytes:
    return f"{service} {','.join(map(str, token_ids))} {','.join(map(str, times))}".encode()
