"""What one engine pod's sidecar knows of its engine: the operator's view of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine process.

    `Starting`: the scheduler has not reported yet. `Idle`: nothing to do. `Running`: steps advance.
    `Hung`: requests run but no step was made for a while. `Stock`: the plugin left the engine with vLLM's own
    scheduler (`reason` says why). `Gone`: it reported once and its heartbeat stopped.
    """

    state: Literal["Starting", "Idle", "Running", "Hung", "Stock", "Gone"]
    reason: str = ""  # one sentence for people
    vllm_version: str = ""
    boot: str = ""
    max_model_len: int = 0  # tokens of prompt and output together; 0: not known
    phase: str = (
        ""  # of its start, before the first report: Downloading, Loading, Compiling; empty: not known
    )
    phase_since: float = 0.0  # unix seconds, by the pod's clock


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """What the engine really does with policy documents.

    The operator's document is in force when `applied_hash` equals its hash. `rejected_hash` with `error` says
    that the sidecar or the engine refused a document and kept the one before.
    """

    name: str = ""  # of the policy in force
    applied_hash: str = ""
    rejected_hash: str = ""
    error: str = ""
    fallback_steps: int = 0  # steps planned FCFS because the policy failed
    disabled: bool = False  # the circuit breaker replaced the policy by FCFS


@dataclass(frozen=True, slots=True)
class PredictionState:
    """Who predicts output lengths in the engine.

    `GivenUp`: the predictor that was asked for failed too often; the mean of recent outputs stands in.
    """

    predictor: Literal["None", "Quantile", "Learned", "GivenUp"] = "None"
    learned: int = 0  # finished requests since the engine's boot
    failures: int = 0  # predictions since boot for which the mean stood in


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Sidecar → operator, `GET /status`."""

    runtime_version: str  # of sidecar and plugin
    policies: tuple[str, ...]  # names that this runtime understands
    policy_schema: int  # newest PolicyDocument schema that this runtime understands
    engine: EngineInfo
    policy: AppliedPolicy
    prediction: PredictionState = PredictionState()
    turn_group: str | None = None  # hash of the TurnGroup that the engine was given; None: an older sidecar
    without_turns: bool = False  # it has such a group, and has long not reached its turn server
    schema: int = 1
