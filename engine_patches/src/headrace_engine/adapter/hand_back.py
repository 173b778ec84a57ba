"""Hands requests back that lost their KV, so that whoever sent them has another engine go on.

Only the gateway's relay asks for that, request by request; all others wait here, as does what takes most of
all KV: it would find room at no other engine either. Who is handed back ends as if its client had left, and
its last output says why (`contracts.resume_arguments`).
"""

from __future__ import annotations

from collections.abc import Iterable

from vllm.v1.engine import EngineCoreOutput, FinishReason
from vllm.v1.engine import EngineCoreOutputs as VllmOutputs
from vllm.v1.request import RequestStatus

from headrace_engine.adapter.vllm_types import EngineCoreOutputs, VllmRequest, VllmScheduler
from headrace_engine.contracts.resume_arguments import HAND_BACK, HANDED_BACK
from headrace_engine.policies.engine_view import EngineLimits


def hand_back(
    scheduler: VllmScheduler,
    limits: EngineLimits,
    preempted: Iterable[str],
    results: dict[int, EngineCoreOutputs],
) -> None:
    """End those of the `preempted` requests, by id, that are still in the queue, and say so in `results`.

    These are a step's outputs by client; what a request had in flight as it lost its KV has come by then.
    """
    for name in preempted:
        request = scheduler.requests.get(name)
        if request is None or request.status != RequestStatus.PREEMPTED or not _asks_for_it(request):
            continue
        if 2 * limits.blocks(request.num_tokens) > limits.total_blocks:
            continue
        # In the engine's books as an error: of an abort it is not known whether the answer was whole.
        scheduler.finish_requests(name, RequestStatus.FINISHED_ERROR)
        ended = EngineCoreOutput(name, [], finish_reason=FinishReason.ABORT, stop_reason=HANDED_BACK)
        of_client = results.setdefault(request.client_index, VllmOutputs())
        of_client.outputs = [*of_client.outputs, ended]


def _asks_for_it(request: VllmRequest) -> bool:
    params = request.sampling_params
    return params is not None and HAND_BACK in (params.extra_args or {})
