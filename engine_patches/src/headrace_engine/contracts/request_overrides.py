"""What a client may override for one request, and how that travels from the gateway to the engine.

The gateway takes it from headers, `x-headrace-ttft-ms` and so on, and hands it on in `x-request-id`, which
vLLM makes part of the request's id for chat and text completions: `<id>~headrace~250~~~80~`, one field for
each of `OVERRIDES` in their order, empty for none. In a body it is `vllm_xargs`, `headrace_ttft_ms` and so
on; that is the only way for `/v1/responses`, whose id vLLM takes from the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

OVERRIDES = ("ttft_ms", "tpot_ms", "e2e_ms", "output_tokens")
MARK = "~headrace~"


def header_name(override: str) -> str:
    """Return the request header that carries one of `OVERRIDES`."""
    return f"x-headrace-{override.replace('_', '-')}"


def argument_name(override: str) -> str:
    """Return the key of `vllm_xargs` that carries one of `OVERRIDES`."""
    return f"headrace_{override}"


def write_request_id(request_id: str, values: Iterable[str]) -> str:
    """Put the values of `OVERRIDES`, in their order and empty for none, into a request's id."""
    return request_id + MARK + "".join(f"{value}~" for value in values)


_IN_ID = re.compile(MARK + "".join(f"(?P<{argument_name(override)}>[^~]*)~" for override in OVERRIDES))


def parse_request_id(request_id: str) -> dict[str, str]:
    """Return what the gateway put into a request's id, keyed like `vllm_xargs`; unchecked."""
    if MARK not in request_id:
        return {}
    found = _IN_ID.search(request_id)
    return {key: value for key, value in found.groupdict().items() if value} if found else {}
