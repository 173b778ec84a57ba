"""What all rivals share: a gateway that keeps books on its own requests, from choice to last token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace_engine.contracts import GatewayConfig, LoadReport
from headrace_engine.cost.model import CostModel
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_gateway.balancers.endpoint import Work
from headrace_gateway.simulated import Board, SimulatedGateway


class Engine(Protocol):
    """What a rival may know of a simulated engine."""

    settings: EngineSettings
    cost: CostModel
    link: Board

    def cached_blocks(self, arrival: Arrival) -> int:
        """Count the KV blocks of the prompt's beginning that are in the cache."""


@dataclass(slots=True)
class Request:
    """One request, as its balancer sees it."""

    arrival: Arrival
    tokens: int  # of the prompt, estimated
    text: bytes  # empty: it begins like no other
    now: float  # seconds


@dataclass(slots=True)
class Load:
    """What is in flight to one engine."""

    requests: int = 0  # until their last token
    prefill_tokens: int = 0  # to compute, until the first token


@dataclass(slots=True)
class Sent:
    """A request in flight."""

    request: Request
    address: str
    prefill_tokens: int


@dataclass(slots=True)
class Turns:
    """Takes turns among equals, as llm-d's max-score-picker: by one counter over all choices."""

    turn: int = 0

    def pick(self, tied: Sequence[str]) -> str:
        """Return whose turn it is."""
        chosen = tied[self.turn % len(tied)]
        self.turn += 1
        return chosen


class Rival(SimulatedGateway):
    """A balancer in front of simulated engines 0, 1, …, whose addresses are their numbers."""

    def __init__(self, config: GatewayConfig, engines: Sequence[Engine], seed: int) -> None:
        super().__init__(config, [engine.link for engine in engines], seed)
        self.engines = {str(number): engine for number, engine in enumerate(engines)}
        self.loads = {address: Load() for address in self.engines}
        self.random = self.fleet.context.random
        self._sent: dict[int, Sent] = {}  # by the arrival's identity

    def choose(self, arrival: Arrival, now: float) -> int | None:
        """Choose the engine for a request; None if there is none."""
        prompt = self.prompt(arrival)
        work = self.fleet.token_rate.work(prompt)
        request = Request(arrival, round(work.tokens), prompt.text, now)
        candidates = list(self.fleet.endpoints)
        if not candidates:
            self.refused += 1
            return None
        chosen = self.pick(request, candidates)
        self._send(request, chosen, work)
        return int(chosen)

    def pick(self, request: Request, candidates: Sequence[str]) -> str:
        """Choose among these engines, by address."""
        raise NotImplementedError

    def uncached_tokens(self, request: Request, _address: str) -> int:
        """Return the prompt tokens that the engine is believed to have to compute."""
        return request.tokens

    def sent(self, request: Request, address: str) -> None:
        """Take in that a request was sent, after it was counted."""

    def done(self, request: Request, address: str) -> None:
        """Take in that a request has ended."""

    def report(self, address: str) -> LoadReport | None:
        """Return the engine's newest report."""
        return self.fleet.endpoints[address].report

    def record_first_token(self, engine: int, outcome: Outcome, _now: float) -> None:
        """Take in that a prompt has been computed."""
        sent = self._sent[id(outcome.arrival)]
        self.loads[str(engine)].prefill_tokens -= sent.prefill_tokens
        sent.prefill_tokens = 0

    def record_finished(self, engine: int, outcome: Outcome, _now: float) -> None:
        """Take a finished request off the books."""
        sent = self._sent.pop(id(outcome.arrival))
        self.loads[str(engine)].requests -= 1
        self.done(sent.request, sent.address)

    def _send(self, request: Request, address: str, work: Work) -> None:
        tokens = self.uncached_tokens(request, address)
        self.fleet.endpoints[address].book(work, request.now)  # for the estimate of tokens per byte
        self.loads[address].requests += 1
        self.loads[address].prefill_tokens += tokens
        self._sent[id(request.arrival)] = Sent(request, address, tokens)
        self.sent(request, address)
