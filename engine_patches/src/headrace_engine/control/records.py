"""What the engine tells: its state now, one sample per step, one record per finished request.

Times are unix seconds, durations seconds. A record's fields, with their types and order, are its wire format:
adding one means a new version of its layout, and a reader treats another version like an absent file. They
are tuples since the engine makes them within its steps.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from headrace_engine.control.layout import Bool, Float64, Layout, UInt32, UInt64, make_layout


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


class TurnCode(enum.IntEnum):
    """Whether an engine takes turns on its GPU, as of its last step."""

    NONE = 0  # it is in no group
    IN_TURNS = 1
    ALONE = 2  # it computes whenever it wants, since it can't reach its group's turn server


class Target(enum.IntFlag):
    """Targets of a request, as bit sets in `FinishedRequest`."""

    TTFT = 1
    TPOT = 2
    E2E = 4


class BoardRecord(NamedTuple):
    """An engine's state at `time`: as of the step planned last, or of one less than 10 ms before it, 50 ms if
    all just go on generating.

    Written again once a second while there is no step.
    """

    time: Float64
    step: UInt64  # scheduler steps since boot
    running: UInt32
    waiting: UInt32
    waiting_prefill_tokens: UInt64  # prompt tokens of the waiting requests
    unfinished_prefill_tokens: UInt64  # prompt tokens of running requests that are not computed yet
    waiting_kv_blocks: UInt64  # KV blocks that the waiting requests' prompts will need
    free_kv_blocks: UInt32
    total_kv_blocks: UInt32
    block_size: UInt32  # tokens per KV block, of one request's blocks in all groups of layers
    arrivals: UInt64  # requests since boot
    arrived_tokens: UInt64  # of their prompts, and of the answers that they go on with
    finishes: UInt64  # since boot, aborted ones included
    preemptions: UInt64  # since boot
    fallback_steps: UInt64  # steps since boot that were planned FCFS because the policy failed
    error_code: UInt32  # an ErrorCode
    applied_hash: UInt64  # of the policy document in force; 0 before the first
    disabled: Bool  # the circuit breaker replaced the policy by FCFS
    max_step_tokens: UInt32  # the engine's own --max-num-batched-tokens
    predictor: UInt32 = 0  # a PredictorCode
    prediction_failures: UInt64 = 0  # since boot; for each the mean of recent outputs stood in
    predictions_learned: UInt64 = 0  # requests since boot whose output was learned from
    ignored_overrides: UInt64 = 0  # since boot: targets and hints of clients that were not followed
    step_tokens: UInt32 = 0  # most tokens of the step planned last
    skipped: UInt32 = 0  # running requests that it skips
    gauge_1: Float64 = 0.0  # the policy's inner state, as its module's GAUGES names it
    gauge_2: Float64 = 0.0
    gauge_3: Float64 = 0.0
    gauge_4: Float64 = 0.0
    gauge_5: Float64 = 0.0
    gauge_6: Float64 = 0.0
    turn_code: UInt32 = 0  # a TurnCode
    turns: UInt64 = 0  # since boot
    turn_wait_seconds: Float64 = 0.0  # since boot: with requests to compute, for the turn

    @property
    def gauges(self) -> tuple[float, ...]:
        """The six numbers of the policy's inner state."""
        return (self.gauge_1, self.gauge_2, self.gauge_3, self.gauge_4, self.gauge_5, self.gauge_6)


class StepSample(NamedTuple):
    """One model step: what was computed and how long it took."""

    prefill_tokens: UInt32
    prefill_work: UInt64  # sum over prefill chunks of chunk tokens x context tokens
    decodes: UInt32
    decode_context: UInt64  # sum of the decodes' context tokens
    seconds: Float64


class FinishedRequest(NamedTuple):
    """One request that ran to its end."""

    time: Float64  # when it finished
    prompt_tokens: UInt32
    output_tokens: UInt32
    ttft: Float64
    max_itl: Float64  # 0 with fewer than two output tokens
    tpot: Float64  # likewise
    itl_violations: UInt32  # gaps between tokens that exceeded the TPOT target
    e2e: Float64
    queue_time: Float64  # arrival until first scheduled
    targets: UInt32  # set of Target that the request had
    met: UInt32  # subset of `targets` that it met
    preemptions: UInt32
    overridden: UInt32 = 0  # set of Target that its client set
    impossible: UInt32 = 0  # subset of `targets` that it would have missed alone on the engine
    predicted_tokens: Float64 = 0.0  # output that was expected when it arrived; 0 if nothing was


BOARD: Layout[BoardRecord] = make_layout(b"HRBOARD\0", 3, BoardRecord)
STEPS: Layout[StepSample] = make_layout(b"HRSTEPS\0", 1, StepSample)
FINISHED: Layout[FinishedRequest] = make_layout(b"HRFINISH", 2, FinishedRequest)
