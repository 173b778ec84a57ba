"""A small stand-in for an engine's state, for tests of policies without vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_engine.cost.model import CostModel
from headrace_engine.policies.engine_view import NO_TARGETS, EngineLimits, Targets

LIMITS = EngineLimits(block_size=16, kv_groups=1, total_blocks=1000, max_step_tokens=2048, max_running=256)


@dataclass(eq=False, slots=True)
class FakeRequest:
    request_id: str
    arrival_time: float
    num_tokens: int
    priority: int = 0
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    max_tokens: int = 16
    num_output_tokens: int = 0  # of `num_tokens`

    @property
    def num_prompt_tokens(self) -> int:
        return self.num_tokens - self.num_output_tokens


@dataclass(slots=True)
class FakeView:
    """`admit` does what the engine does with a request that it takes from a plan.

    `targets_of` and `outputs` are by request id; a request that is not there gets `default_targets`, and
    `max_tokens` for its output. `targets_asked` counts, for tests of what a policy's step costs.
    """

    waiting: list[FakeRequest] = field(default_factory=list)
    running: list[FakeRequest] = field(default_factory=list)
    free_blocks: int = LIMITS.total_blocks
    promised_blocks: int = 0
    now: float = 0.0
    limits: EngineLimits = LIMITS
    cost: CostModel | None = None
    token_at_most: float | None = None
    default_targets: Targets = NO_TARGETS
    targets_of: dict[str, Targets] = field(default_factory=dict)
    outputs: dict[str, float] = field(default_factory=dict)
    predicted_ahead: list[FakeRequest] = field(default_factory=list)
    cached: dict[str, int] = field(default_factory=dict)  # tokens
    shared: dict[str, int] = field(default_factory=dict)  # blocks
    targets_asked: int = 0
    tokens_per_step: float = 1.0
    encoder_token: float = 0.0
    encoded: dict[str, int] = field(default_factory=dict)  # tokens that encoders still have to yield
    first_tokens: dict[str, tuple[float, int]] = field(default_factory=dict)
    holding: list[FakeRequest] = field(default_factory=list)

    def targets(self, request: FakeRequest) -> Targets:
        self.targets_asked += 1
        return self.targets_of.get(request.request_id, self.default_targets)

    def first_token(self, request: FakeRequest) -> tuple[float, int] | None:
        return self.first_tokens.get(request.request_id)

    def predicted_output(self, request: FakeRequest) -> float:
        return self.outputs.get(request.request_id, request.max_tokens)

    def predict_ahead(self, request: FakeRequest) -> float:
        self.predicted_ahead.append(request)
        return self.predicted_output(request)

    def most_output(self, request: FakeRequest) -> int:
        return request.max_tokens

    def cached_tokens(self, request: FakeRequest) -> int:
        return self.cached.get(request.request_id, 0)

    def encoder_tokens(self, request: FakeRequest) -> int:
        return self.encoded.get(request.request_id, 0)

    def shared_blocks(self, request: FakeRequest) -> int:
        return self.shared.get(request.request_id, 0)

    def admit(self, request: FakeRequest) -> None:
        self.waiting.remove(request)
        self.running.append(request)
        self.free_blocks -= self.limits.blocks(request.num_tokens) - self.shared_blocks(request)
