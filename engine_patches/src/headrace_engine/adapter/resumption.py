"""How far other engines had come with a request; `resume` sets it before the scheduler has the request."""

from __future__ import annotations

from headrace_engine.adapter.vllm_types import VllmRequest
from headrace_engine.contracts.resume_arguments import Resumption


def resumption_of(request: VllmRequest) -> Resumption | None:
    """Return how far another engine had come with a request; None for one that is new."""
    found: Resumption | None = getattr(request, "resumption", None)
    return found


def resumption_with_tokens(request: VllmRequest) -> Resumption | None:
    """Return how far another engine had come with a request; None where it had delivered nothing."""
    found = resumption_of(request)
    return found if found is not None and found.token_ids else None
