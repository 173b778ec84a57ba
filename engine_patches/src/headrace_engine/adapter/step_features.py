"""What a step computes, from vLLM's `SchedulerOutput`; nothing here imports vLLM."""

from __future__ import annotations

from collections.abc import Iterable

from headrace_engine.adapter.vllm_types import SchedulerOutput
from headrace_engine.control.records import StepSample


def step_sample(output: SchedulerOutput, seconds: float) -> StepSample:
    """Sample what a step computed and how long it took."""
    return StepSample(*step_features(output)[:4], seconds)


def pure_decode_context(output: SchedulerOutput) -> int | None:
    """Sum up the context of a step that only decodes, a token for each and nobody new; None of any other."""
    cached = output.scheduled_cached_reqs
    if output.total_num_scheduled_tokens != len(cached.req_ids):
        return None
    return sum(cached.num_computed_tokens)


def step_features(output: SchedulerOutput) -> tuple[int, int, int, int, int]:
    """Count prefill tokens and work, decodes and their context, prefill chunks of a `SchedulerOutput`.

    A token's context is all that precedes it. One token is a decode, also if it is the last of a prompt.
    """
    pure = pure_decode_context(output)
    if pure is not None:
        return 0, 0, output.total_num_scheduled_tokens, pure, 0
    tokens, drafted = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
    cached, fresh = output.scheduled_cached_reqs, output.scheduled_new_reqs
    decodes, decode_context = len(cached.req_ids), sum(cached.num_computed_tokens)
    contexts = {new.req_id: new.num_computed_tokens for new in fresh}
    chunks: Iterable[tuple[str, int]] = [(name, tokens[name]) for name in contexts]
    if output.total_num_scheduled_tokens != decodes + sum(chunk for _, chunk in chunks):
        # Of those who go on some get more than one token: each is looked at.
        contexts |= zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        chunks = tokens.items()
    decodes += len(fresh)
    decode_context += sum(new.num_computed_tokens for new in fresh)
    prefill_tokens = prefill_work = prefills = 0
    for name, chunk in chunks:
        if chunk != 1 and name not in drafted:
            context = contexts[name]
            prefill_tokens += chunk
            prefill_work += chunk * context + chunk * (chunk + 1) // 2
            prefills += 1
            decodes -= 1
            decode_context -= context
    return prefill_tokens, prefill_work, decodes, decode_context, prefills
