"""How the gateway asks an engine to go on with a generation that was cut elsewhere.

The request is the client's own. Its `vllm_xargs` have in addition the ids of the output tokens that were
delivered before, and their signature with a key that the service's engines and the gateway share. The answer
is the whole one, from its first token on, as if the engine had generated all of it: the gateway leaves out
what the client has. Ids without a valid signature are not there, for all that an engine does.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

RESUME_IDS = "headrace_resume_ids"
SIGNATURE = "headrace_resume_signature"
KEY_VARIABLE = "HEADRACE_RESUME_KEY"  # of the engine's environment


def arguments(key: str, token_ids: Sequence[int]) -> dict[str, Any]:
    """Return what to add to `vllm_xargs` so that an engine with this key goes on after these tokens."""
    return {RESUME_IDS: list(token_ids), SIGNATURE: _sign(key, token_ids)}


def delivered_tokens(key: str, extra_args: Mapping[str, Any] | None) -> tuple[int, ...]:
    """Return the token ids that whoever has `key` asks to go on after; empty if nobody does."""
    if not key or not extra_args or RESUME_IDS not in extra_args:
        return ()
    ids, signature = extra_args[RESUME_IDS], extra_args.get(SIGNATURE)
    if not (isinstance(ids, list) and all(type(each) is int for each in ids) and isinstance(signature, str)):
        return ()
    valid = hmac.compare_digest(_sign(key, ids).encode(), signature.encode(errors="replace"))
    return tuple(ids) if valid else ()


def _sign(key: str, token_ids: Sequence[int]) -> str:
    return hmac.new(key.encode(), ",".join(map(str, token_ids)).encode(), hashlib.sha256).hexdigest()
