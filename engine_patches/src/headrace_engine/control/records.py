"""What the engine tells: its state now, one sample per step, one record per finished request.

Times are unix seconds, durations seconds. A record's fields and their order are its wire format: adding one
means a new version of its layout, and a reader treats another version like an absent file. They are tuples
since the engine makes them within its steps.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from headrace_engine.control.layout import Layout, layout


class ErrorCode(enum.IntEnum):
    """The last thing that went wrong with a policy in the engine; the engine's log has the details."""

    NONE = 0
    DOCUMENT = 1  # control/policy.json could not be read or is not a policy document
    PARAMETERS = 2  # the document names an unknown policy or parameters outside their bounds
    RAISED = 3  # the policy raised
    INVALID_PLAN = 4  # the policy planned something impossible
    OVERRAN = 5  # the policy took too long to plan


class PredictorCode(enum.IntEnum):
    """Who predicts output lengths."""

    MEAN = 0  # the mean of recent outputs, as asked for
    QUANTILE = 1
    LEARNED = 2
    GIVEN_UP = 3  # the predictor asked for failed too often; the mean of recent outputs stands in


class Target(enum.IntFlag):
    """Targets of a request, as bit sets in `FinishedRequest`."""

    TTFT = 1
    TBT = 2
    JCT = 4


class BoardRecord(NamedTuple):
    """An engine's state at `time`, written after each step, and once a second when there is none."""

    time: float
    step: int  # scheduler steps since boot
    running: int
    waiting: int
    waiting_prefill_tokens: int  # prompt tokens of the waiting requests
    unfinished_prefill_tokens: int  # prompt tokens of running requests that are not computed yet
    waiting_kv_blocks: int  # KV blocks that the waiting requests' prompts will need
    free_kv_blocks: int
    total_kv_blocks: int
    block_size: int  # tokens per KV block, of one request's blocks in all groups of layers
    arrivals: int  # requests since boot
    arrived_tokens: int  # their prompt tokens
    finishes: int  # since boot, aborted ones included
    preemptions: int  # since boot
    fallback_steps: int  # steps since boot that were planned FCFS because the policy failed
    error_code: int  # an ErrorCode
    applied_hash: int  # of the policy document in force; 0 before the first
    disabled: bool  # the circuit breaker replaced the policy by FCFS
    max_step_tokens: int  # the engine's own --max-num-batched-tokens
    predictor: int = 0  # a PredictorCode
    prediction_failures: int = 0  # since boot; for each the mean of recent outputs stood in
    predictions_learned: int = 0  # requests since boot whose output was learned from
    ignored_wishes: int = 0  # since boot: targets and hints of clients that were not followed
    step_tokens: int = 0  # most tokens of the step planned last
    hidden: int = 0  # running requests that it skips
    gauge_1: float = 0.0  # the policy's inner state, as its module's GAUGES names it
    gauge_2: float = 0.0
    gauge_3: float = 0.0
    gauge_4: float = 0.0
    gauge_5: float = 0.0
    gauge_6: float = 0.0

    @property
    def gauges(self) -> tuple[float, ...]:
        """All six."""
        return (self.gauge_1, self.gauge_2, self.gauge_3, self.gauge_4, self.gauge_5, self.gauge_6)


class StepSample(NamedTuple):
    """One model step: what was computed and how long it took."""

    prefill_tokens: int
    prefill_work: int  # sum over prefill chunks of chunk tokens x context tokens
    decodes: int
    decode_context: int  # sum of the decodes' context tokens
    seconds: float


class FinishedRequest(NamedTuple):
    """One request that ran to its end."""

    time: float  # when it finished
    prompt_tokens: int
    output_tokens: int
    ttft: float
    max_tbt: float  # 0 with fewer than two output tokens
    mean_tbt: float  # likewise
    tbt_violations: int  # gaps between tokens that exceeded the TBT target
    jct: float
    queue_time: float  # arrival until first scheduled
    targets: int  # set of Target that the request had
    met: int  # subset of `targets` that it met
    preemptions: int
    asked: int = 0  # set of Target that its client set
    impossible: int = 0  # subset of `targets` that it would have missed alone on the engine
    predicted_tokens: float = 0.0  # output that was expected when it arrived; 0 if nothing was


BOARD: Layout[BoardRecord] = layout(b"HRBOARD\0", 2, BoardRecord, "dQIIQQQIIIQQQQQIQ?IIQQQIIdddddd")
STEPS: Layout[StepSample] = layout(b"HRSTEPS\0", 1, StepSample, "IQIQd")
FINISHED: Layout[FinishedRequest] = layout(b"HRFINISH", 2, FinishedRequest, "dIIdddIddIIIIId")
