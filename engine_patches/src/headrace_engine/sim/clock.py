"""A clock that moves only when told, and a link to nowhere that keeps what the engine tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headrace_engine.adapter.control_link import Staged
from headrace_engine.contracts import PolicyDocument, Prediction, Slo
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.control.records import BoardRecord, FinishedRequest, StepSample
from headrace_engine.cost.model import CostModel
from headrace_engine.policies import registry
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.prediction import Predictor, build_predictor
from headrace_engine.sim.form import Form
from headrace_engine.turns.connection import JoinGroup, join_group

Compose = Callable[[EngineLimits], Policy]
"""A policy that no document can name."""

START = 1_700_000_000.0  # unix seconds; any, but of today's size, where floats are as coarse as in production


@dataclass(slots=True)
class VirtualClock:
    """The present time in unix seconds."""

    now: float = START

    def __call__(self) -> float:
        """Return the present time of this clock."""
        return self.now


@dataclass(slots=True)
class MemoryLink:
    """A `ControlLink` for simulations and tests; planning takes no time on it."""

    clock: VirtualClock
    staged: Staged | None = None
    document: PolicyDocument | Form | None = None  # in force when the engine starts
    compose: Compose | None = None  # or this
    listens: bool = True
    board: BoardRecord | None = None
    steps: list[StepSample] = field(default_factory=list)
    requests: list[FinishedRequest] = field(default_factory=list)
    limits: EngineLimits | None = None
    known_cost: CostModel | None = None
    turn_group: TurnGroup | None = None
    join_group: JoinGroup = join_group
    slo: Slo = field(default_factory=Slo)  # of a policy that no document can name
    longest: int | None = None  # prompt and output, tokens; if given it hides how long outputs will be

    def make_predictor(self, prediction: Prediction) -> Predictor:
        """Build the predictor that the policy document names."""
        return build_predictor(prediction)

    def most_output(self, request: Any) -> int:
        """Return what the model's context takes: `max_tokens` would tell how long the output will be."""
        most: int = request.max_tokens if self.longest is None else self.longest - request.num_prompt_tokens
        return most

    def stopwatch(self) -> float:
        """Return the same time always: planning costs nothing here."""
        return 0.0

    def start(self, limits: EngineLimits) -> None:
        """Stage the policy that the simulation starts with."""
        self.limits = limits
        if self.compose is not None:
            document = PolicyDocument("Simulated", slo=self.slo).sealed()
            self.staged = Staged(document, partial(self.compose, limits))
        if self.document is not None:
            self.stage(self.document)

    def stage(self, policy: PolicyDocument | Form) -> None:
        """Have the engine put `policy` in force at its next step; raises ContractError."""
        if self.limits is None:
            raise RuntimeError("no engine has started on this link")
        if isinstance(policy, Form):
            document, make = policy.document, partial(policy.build, self.limits)
        else:
            document, make = policy, partial(registry.build_policy, policy, self.limits)
        make()  # refuses what no policy can be made of
        self.staged = Staged(document.sealed(), make)

    def publish_board(self, record: BoardRecord) -> None:
        """Keep the newest board record for the simulation."""
        self.board = record

    def publish_step(self, sample: StepSample) -> None:
        """Keep a step sample for the simulation."""
        self.steps.append(sample)

    def publish_finished(self, record: FinishedRequest) -> None:
        """Keep the record of a finished request."""
        self.requests.append(record)

    def mute(self) -> None:
        """Keep no board: there is none to believe."""
        self.board = None

    def close(self) -> None:
        """Do nothing: there is no thread or file to stop."""
