"""What a step computes, from vLLM's `SchedulerOutput`; nothing here imports vLLM."""

from __future__ import annotations

from headrace_engine.adapter.vllm_types import SchedulerOutput
from headrace_engine.control.records import StepSample


def step_sample(output: SchedulerOutput, seconds: float) -> StepSample:
    """Sample what a step computed and how long it took."""
    return StepSample(*step_features(output)[:4], seconds)


def step_features(output: SchedulerOutput) -> tuple[int, int, int, int, int]:
    """Count prefill tokens and work, decodes and their context, prefill chunks of a `SchedulerOutput`.

    A token's context is all that precedes it. One token is a decode, also if it is the last of a prompt.
    """
    tokens, drafted = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
    cached = output.scheduled_cached_reqs
    if output.total_num_scheduled_tokens == len(cached.req_ids):  # one token each, and nobody new
        return 0, 0, len(cached.req_ids), sum(cached.num_computed_tokens), 0
    contexts = dict(zip(cached.req_ids, cached.num_computed_tokens))  # noqa: B905 of equal length
    contexts |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    prefill_tokens = prefill_work = prefills = 0
    decodes, decode_context = len(contexts), sum(contexts.values())
    for request_id, chunk in tokens.items():
        if chunk != 1 and request_id not in drafted:
            context = contexts[request_id]
            prefill_tokens += chunk
            prefill_work += chunk * context + chunk * (chunk + 1) // 2
            prefills += 1
            decodes -= 1
            decode_context -= context
    return prefill_tokens, prefill_work, decodes, decode_context, prefills
