"""The policy document: which scheduling policy an engine shall run, with which parameters and targets."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace_engine.contracts.codec import dumps


@dataclass(frozen=True, slots=True)
class StepBudget:
    """How many tokens one engine step may process.

    `Engine`: vLLM's own `--max-num-batched-tokens`. `Fixed`: `tokens`, never above the engine's own limit.
    """

    mode: Literal["Engine", "Fixed"] = "Engine"
    tokens: int | None = None  # with Fixed only


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets of the service in milliseconds; `None` means no target.

    TTFT: arrival to first token. TBT: between two tokens of one request. JCT: arrival to last token.
    """

    ttft_ms: int | None = None
    tbt_ms: int | None = None
    jct_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """Operator → sidecar → engine. `hash` is of the content, so scaling or a rewrite never changes it."""

    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    step_budget: StepBudget = field(default_factory=StepBudget)
    slo: Slo = field(default_factory=Slo)
    schema: int = 1
    hash: str = ""

    def sealed(self) -> PolicyDocument:
        """This document with `hash` set from its content."""
        return dataclasses.replace(self, hash=self.content_hash())

    def content_hash(self) -> str:
        """16 hex digits over everything but `hash`; also fits the stats board's 64-bit field."""
        text = dumps(dataclasses.replace(self, hash=""))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
