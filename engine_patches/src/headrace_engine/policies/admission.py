"""Admissions: how far down the ranked requests one step may go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace_engine.policies.engine_view import EngineView, RequestView


def prompt_fits(ranked: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
    """Admit in order while the KV of a request's whole prefill is free; stop at the first that does not fit.

    If nothing runs, no KV will be released by waiting, and the engine may try the first whatever it needs.
    """
    for request in ranked:
        if view.running and not prefill_fits(request, view):
            return
        yield request


def prefill_fits(request: RequestView, view: EngineView, spare: int = 0) -> bool:
    """Tell whether the KV of its whole prefill is free, and `spare` blocks more.

    Blocks that running requests need to finish their prefill are taken; those that they share with `request`
    are there already. Of its cached blocks that nobody holds each takes a free one.
    """
    room = view.free_blocks - view.promised_blocks - spare
    blocks = view.limits.blocks(request.num_tokens)
    return blocks <= room or blocks - view.shared_blocks(request) <= room
