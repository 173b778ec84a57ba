"""The two documents that this sidecar serves, made from what it knows; pure.

Estimates are rounded to four digits: more would only make each report differ from the one before.
"""

from __future__ import annotations

from typing import Literal

from headrace_engine.contracts import AppliedPolicy, EngineInfo, LoadReport, PredictionState
from headrace_engine.control.records import BoardRecord, ErrorCode, PredictorCode
from headrace_sidecar.estimates import Rates
from headrace_sidecar.handover import Refusal

NOTHING = BoardRecord(
    time=0.0,
    step=0,
    running=0,
    waiting=0,
    waiting_prefill_tokens=0,
    unfinished_prefill_tokens=0,
    waiting_kv_blocks=0,
    free_kv_blocks=0,
    total_kv_blocks=0,
    block_size=0,
    arrivals=0,
    arrived_tokens=0,
    finishes=0,
    preemptions=0,
    fallback_steps=0,
    error_code=ErrorCode.NONE,
    applied_hash=0,
    disabled=False,
    max_step_tokens=0,
)

DOCUMENT_ERRORS = (ErrorCode.DOCUMENT, ErrorCode.PARAMETERS)
PREDICTORS: dict[PredictorCode, Literal["None", "Quantile", "Learned", "GivenUp"]] = {
    PredictorCode.MEAN: "None",
    PredictorCode.QUANTILE: "Quantile",
    PredictorCode.LEARNED: "Learned",
    PredictorCode.GIVEN_UP: "GivenUp",
}
MEANING = {
    ErrorCode.DOCUMENT: "the engine could not read the policy document",
    ErrorCode.PARAMETERS: "the engine refused the policy or its parameters",
    ErrorCode.RAISED: "the policy raised an exception",
    ErrorCode.INVALID_PLAN: "the policy made an impossible plan",
    ErrorCode.OVERRAN: "the policy took too long to plan",
}


def load_report(engine: EngineInfo, record: BoardRecord, rates: Rates, *, serving: bool) -> LoadReport:
    """Make the load report that the picker gets."""
    return LoadReport(
        boot=engine.boot,
        time=record.time,
        serving=serving,
        running=record.running,
        waiting=record.waiting,
        waiting_prefill_tokens=record.waiting_prefill_tokens,
        unfinished_prefill_tokens=record.unfinished_prefill_tokens,
        waiting_kv_blocks=record.waiting_kv_blocks,
        free_kv_blocks=record.free_kv_blocks,
        total_kv_blocks=record.total_kv_blocks,
        block_size=record.block_size,
        arrivals=record.arrivals,
        arrived_tokens=record.arrived_tokens,
        finishes=record.finishes,
        prefill_tokens_per_second=_rounded(rates.prefill_tokens_per_second),
        step_seconds=_rounded(rates.step_seconds),
        mean_prompt_tokens=_rounded(rates.mean_prompt_tokens),
        mean_output_tokens=_rounded(rates.mean_output_tokens),
        max_model_len=engine.max_model_len,
    )


def applied_policy(record: BoardRecord, name: str, decided: str, refusal: Refusal | None) -> AppliedPolicy:
    """Describe the policy in force for the operator.

    `name` is that of the policy on the board. `decided` is the hash of the document that was handed over,
    once the engine has had time to accept or reject it: until then an error on the board belongs to the
    document before. The sidecar's own refusal is told first, since the engine never saw that document.
    """
    applied = applied_hash(record)
    error = MEANING.get(ErrorCode(record.error_code), "") if record.error_code in MEANING else ""
    rejected = decided if record.error_code in DOCUMENT_ERRORS and applied != decided else ""
    return AppliedPolicy(
        name=name,
        applied_hash=applied,
        rejected_hash=refusal.hash if refusal else rejected,
        error=refusal.error if refusal else error and f"{error}; see the engine's log",
        fallback_steps=record.fallback_steps,
        disabled=record.disabled,
    )


def prediction_state(record: BoardRecord) -> PredictionState:
    """Describe the predictor's state for the operator."""
    return PredictionState(
        PREDICTORS[PredictorCode(record.predictor)], record.predictions_learned, record.prediction_failures
    )


def applied_hash(record: BoardRecord) -> str:
    """Return the hash of the document in force, as documents write it; empty before the first."""
    return f"{record.applied_hash:016x}" if record.applied_hash else ""


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
