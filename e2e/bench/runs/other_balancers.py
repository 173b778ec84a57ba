"""Balancers that the product does not have, for the fleet study: llm-d's, from their published definitions.

Both see the same reports as the product's balancers, and, as in llm-d, every request that they sent until its
last token has passed. Prompt lengths are estimated as the product does.
"""

from collections import deque
from collections.abc import Sequence

from headrace_engine.contracts import GatewayConfig
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_gateway.balancers.endpoint import Endpoint
from headrace_gateway.simulated import Board, SimulatedGateway

WINDOW = 5.0  # seconds over which an engine's rate is taken
SCORE_DIGITS = 9  # equal scores are drawn by lot


class Tracking(SimulatedGateway):
    """Knows what is in flight to each engine, by address: requests and prompt tokens."""

    def __init__(self, config: GatewayConfig, boards: Sequence[Board], seed: int) -> None:
        super().__init__(config, boards, seed)
        self.requests = {str(number): 0 for number in range(len(boards))}
        self.tokens = {str(number): 0.0 for number in range(len(boards))}
        self._sent: dict[int, float] = {}  # prompt tokens by the arrival's identity

    def choose(self, arrival: Arrival, now: float) -> int | None:
        """Choose the engine with the highest score."""
        work = self.fleet.token_rate.work(self.prompt(arrival))
        candidates = list(self.fleet.endpoints.values())
        scores = [round(score, SCORE_DIGITS) for score in self.scores(candidates, now)]
        best = max(scores)
        tied = [each for each, score in zip(candidates, scores, strict=True) if score == best]
        chosen = self.fleet.context.random.choice(tied)
        chosen.book(work, now)  # for the estimate of tokens per byte
        self.requests[chosen.address] += 1
        self.tokens[chosen.address] += work.tokens
        self._sent[id(arrival)] = work.tokens
        return int(chosen.address)

    def record_finished(self, engine: int, outcome: Outcome, now: float) -> None:
        """Take a finished request off the books."""
        self.requests[str(engine)] -= 1
        self.tokens[str(engine)] -= self._sent.pop(id(outcome.arrival))
        self.done(str(engine), now)

    def scores(self, candidates: Sequence[Endpoint], now: float) -> list[float]:
        """Score each candidate; the highest wins."""
        raise NotImplementedError

    def done(self, address: str, now: float) -> None:
        """Take in that an engine has finished a request."""


class TokenLoadKv(Tracking):
    """llm-d's token-load scorer plus its KV-cache-utilization scorer, equal weights, best score wins.

    The first falls with the prompt tokens in flight, to 0 at a limit. llm-d's default limit of 4 million
    would drown it in the second; here it is the engine's KV cache, so that both have the same unit.
    """

    def scores(self, candidates: Sequence[Endpoint], _now: float) -> list[float]:
        """Score by token load and KV use."""
        return [self._score(endpoint) for endpoint in candidates]

    def _score(self, endpoint: Endpoint) -> float:
        report = endpoint.report
        if report is None:
            return 2.0
        load = self.tokens[endpoint.address] / (report.total_kv_blocks * report.block_size)
        return (1 - min(load, 1.0)) + report.free_kv_blocks / report.total_kv_blocks


class TokenLoad(Tracking):
    """llm-d's token-load scorer alone: the fewest prompt tokens in flight."""

    def scores(self, candidates: Sequence[Endpoint], _now: float) -> list[float]:
        """Score by the tokens in flight, the fewest highest."""
        return [-self.tokens[endpoint.address] for endpoint in candidates]


class LittlesLaw(Tracking):
    """By Little's law requests in flight / requests finished per second is the time one takes; least wins.

    The idea of llm-d's proposed load-aware picker, which takes the rate of single requests, by which any
    engine is full at about one, and falls to 0 there. Here it is the engine's highest rate over a window, so
    that an engine that had little to do is not taken for a slow one.
    """

    def __init__(self, config: GatewayConfig, boards: Sequence[Board], seed: int) -> None:
        super().__init__(config, boards, seed)
        self._done: dict[str, deque[float]] = {address: deque() for address in self.requests}
        self._rate = dict.fromkeys(self.requests, 0.0)

    def scores(self, candidates: Sequence[Endpoint], _now: float) -> list[float]:
        """Score by the time that a request would take, the shortest highest."""
        typical = sum(self._rate.values()) / len(self._rate)
        return [
            -(self.requests[endpoint.address] + 1) / (self._rate[endpoint.address] or typical or 1.0)
            for endpoint in candidates
        ]

    def done(self, address: str, now: float) -> None:
        """Take the end of a request into the rate."""
        done = self._done[address]
        done.append(now)
        while done[0] < now - WINDOW:
            done.popleft()
        self._rate[address] = max(self._rate[address], len(done) / WINDOW)


RIVALS: dict[str, type[Tracking]] = {
    "token_kv": TokenLoadKv,
    "token_load": TokenLoad,
    "littles_law": LittlesLaw,
}
