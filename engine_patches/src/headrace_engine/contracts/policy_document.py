"""The policy document: which scheduling policy an engine shall run, with which parameters and targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace_engine.contracts.codec import dumps, text_hash


@dataclass(frozen=True, slots=True)
class StepBudget:
    """How many tokens one engine step may process.

    `Policy`: the mode that the policy is made for, see `registry.default_budget`. `Engine`: vLLM's own
    `--max-num-batched-tokens`. `Fixed`: `tokens`, never above the engine's own limit. `SLO`: as many as the
    targets of the running requests leave time for.
    """

    mode: Literal["Policy", "Engine", "Fixed", "SLO"] = "Policy"
    tokens: int | None = None  # with Fixed only


@dataclass(frozen=True, slots=True)
class Slice:
    """How long a request runs before it makes room for others that wait.

    `tokens`: of output until it steps back, if one that has not had a slice has no room; at least a KV block.
    Each further slice of a request counts for twice as many. `patience_ms`: how long who has had one waits
    to go on until it goes ahead of all others, one request at a time. `hand_back`: who loses its KV goes back
    to who sent it, if that goes on with it elsewhere.
    """

    tokens: int
    patience_ms: int = 30_000
    hand_back: bool = False


@dataclass(frozen=True, slots=True)
class PerRequest:
    """The tightest targets that a client may ask for, in milliseconds; a tighter override counts as this.

    `None`: the service's own target; where it has none either, clients cannot set one.
    """

    ttft_ms: int | None = None
    tpot_ms: int | None = None
    e2e_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets of the service in milliseconds; `None` means no target.

    TTFT: arrival to first token. TPOT: mean time between two tokens of one request. E2E: arrival to last
    token, given as a time or as a percentage of what the request would take alone on the engine.
    """

    ttft_ms: int | None = None
    tpot_ms: int | None = None
    e2e_ms: int | None = None
    e2e_scale_percent: int | None = None  # instead of e2e_ms; 200: twice the unloaded time
    per_request: PerRequest | None = None  # None: what clients ask for is ignored


@dataclass(frozen=True, slots=True)
class Prediction:
    """How the engine predicts the number of output tokens of a request.

    `None`: the mean of recently finished requests. `Quantile`: the `quantile_percent` percentile of finished
    requests that were alike. `Learned`: a small model, trained in the engine's process from its own traffic.
    """

    predictor: Literal["None", "Quantile", "Learned"] = "Quantile"
    quantile_percent: int = 50  # with Quantile


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """Operator → sidecar → engine. `hash` is of the content, so scaling or a rewrite never changes it."""

    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    step_budget: StepBudget = field(default_factory=StepBudget)
    slo: Slo = field(default_factory=Slo)
    prediction: Prediction = field(default_factory=Prediction)
    slice: Slice | None = None  # None: nobody steps back
    schema: int = 2
    hash: str = ""

    def sealed(self) -> PolicyDocument:
        """Return this document with `hash` set from its content."""
        return dataclasses.replace(self, hash=self.content_hash())

    def content_hash(self) -> str:
        """Return the hash of everything but `hash`."""
        text = dumps(dataclasses.replace(self, hash=""))
        return text_hash(text.encode())
