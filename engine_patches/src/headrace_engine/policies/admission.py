"""Admissions: how far down the ranked requests one step may go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace_engine.policies.view import EngineView, RequestView


def prompt_fits(ranked: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
    """Admit in order while the KV of a request's whole prefill is free; stop at the first that does not fit.

    Blocks that running requests need to finish their prefill are taken. A prompt whose beginning is in the
    prefix cache is charged in full, so up to that many blocks stay free. If nothing runs, no KV will be
    released by waiting, and the engine may try the first request whatever it needs.
    """
    for request in ranked:
        if view.running and view.limits.blocks(request.num_tokens) > view.free_blocks - view.promised_blocks:
            return
        yield request
