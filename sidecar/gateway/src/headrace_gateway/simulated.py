"""The gateway and the engines' sidecars on a simulation's virtual clock: the product's own code, no network.

An engine's sidecar learns from the simulated engine's steps and finished requests and tells the gateway what
its board says, whenever that changed and at least once a second. The gateway books, learns and balances as
the picker does; there may be several, of which any gets the next request, and the others soon hear of it.
Times are seconds from 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Protocol

from headrace_engine.contracts import EngineInfo, GatewayConfig, LoadReport
from headrace_engine.control.records import BoardRecord, FinishedRequest, StepSample
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_gateway.balancers.endpoint import Endpoint, Work
from headrace_gateway.pick.fleet import Fleet, NoEngineError, OverloadedError
from headrace_gateway.pick.line import MOST_WAIT, Line
from headrace_gateway.pick.placement import Placement
from headrace_gateway.pick.rebalance import Progress, Reason, surpluses, to_hand_over
from headrace_gateway.pick.tokens import Prompt
from headrace_sidecar.estimates import Estimates
from headrace_sidecar.reports import load_report
from headrace_sidecar.stream import News

BYTES_PER_TOKEN = 4.0  # of a prompt's text in the mean; English with common tokenizers
SPREAD = 0.15  # standard deviation of its logarithm from request to request (assumed)


class Stream(Protocol):
    """What a simulated engine tells of a request that it has not finished: `sim.engine.Stream`."""

    @property
    def outcome(self) -> Outcome:
        """What became of it so far."""

    @property
    def tokens(self) -> int:
        """Prompt, and what was delivered of the answer."""

    @property
    def delivered(self) -> int:
        """Tokens of the answer that were delivered, by whatever engine."""


class Board(Protocol):
    """Where a simulated engine leaves what it tells its sidecar."""

    board: BoardRecord | None
    steps: list[StepSample]
    requests: list[FinishedRequest]


@dataclass(slots=True)
class SimulatedSidecar:
    """The sidecar of one simulated engine."""

    name: str
    source: Board
    estimates: Estimates = field(default_factory=Estimates)
    news: News = field(default_factory=News)

    def observe(self, now: float) -> LoadReport | None:
        """Take in what the engine did since the last time; a report if the gateway should hear of it."""
        self.estimates.add_steps(self.source.steps)
        self.estimates.add_finished(self.source.requests)
        self.source.steps.clear()
        self.source.requests.clear()
        record = self.source.board
        if record is None:
            return None
        state = EngineInfo("Running" if record.running + record.waiting else "Idle", boot=self.name)
        rates = self.estimates.rates(record.max_step_tokens)
        report = load_report(state, record, rates, serving=True)
        return report if self.news.is_worth_sending(report, now) else None


class Forgetful(Endpoint):
    """An engine that no request is booked for: what was sent shows only in its next report."""

    __slots__ = ()

    def book(self, work: Work, now: float) -> None:
        """Leave the work that is sent unbooked."""


@dataclass(frozen=True, slots=True)
class Pickers:
    """How many pickers choose, and after how many seconds one hears of another's choice (infinity: never)."""

    number: int = 1
    delay: float = 0.0005  # three times what it takes on loopback


ONE_PICKER = Pickers()


class SimulatedPicker:
    """A picker's fleet, and what it has yet to hear from others: when, and of which placement."""

    def __init__(
        self, config: GatewayConfig, addresses: Sequence[str], random: Random, kind: type[Endpoint]
    ) -> None:
        self.fleet = Fleet.from_config(config, random)
        self.fleet.endpoints = {address: kind(address) for address in addresses}
        self.fleet.set_addresses(addresses)
        self.to_hear: deque[tuple[float, Placement]] = deque()

    def catch_up(self, now: float) -> Fleet:
        """Return the fleet with all that was heard until now."""
        while self.to_hear and self.to_hear[0][0] <= now:
            at, placement = self.to_hear.popleft()
            self.fleet.take_in(placement, at)
        return self.fleet


class SimulatedGateway:
    """The gateway's pickers for engines 0, 1, …; a `sim.fleet.Gateway`."""

    def __init__(
        self,
        config: GatewayConfig,
        boards: Sequence[Board],
        seed: int,
        *,
        bookkeeping: bool = True,
        pickers: Pickers = ONE_PICKER,
    ) -> None:
        self.refused = 0
        self._delay = pickers.delay
        self._turns = Random(seed)  # noqa: S311  (no secret)
        self._texts = 0
        self._lengths = Random(seed)  # noqa: S311
        self._addresses = [str(number) for number in range(len(boards))]
        self._sidecars = [
            SimulatedSidecar(name, board) for name, board in zip(self._addresses, boards, strict=True)
        ]
        kind = Endpoint if bookkeeping else Forgetful
        self._pickers = [
            SimulatedPicker(config, self._addresses, Random(f"{seed} {number}" if number else seed), kind)  # noqa: S311
            for number in range(pickers.number)
        ]

    @property
    def fleet(self) -> Fleet:
        """The first picker's."""
        return self._pickers[0].fleet

    def choose(self, arrival: Arrival, now: float) -> int | None:
        """Choose the engine for a request, as one of the pickers does, from the size of its text."""
        chosen = self._turns.choice(self._pickers)
        try:
            placement = chosen.catch_up(now).choose(self.prompt(arrival), now)
        except (NoEngineError, OverloadedError):
            self.refused += 1
            return None
        self._share(placement, chosen, now)
        return int(placement.address)

    def choose_other(self, stream: Stream, engine: int, reason: Reason, now: float) -> int | None:
        """Choose the engine that goes on with a stream of `engine`, or None if it had better stay."""
        prompt = self._prompt_again(stream)
        try:
            placement = self.fleet.choose_other(
                prompt, now, self.fleet.endpoints, leaving=self._addresses[engine], reason=reason
            )
        except NoEngineError:
            return None
        self._share(placement, self._pickers[0], now)
        return int(placement.address)

    def choose_again(self, stream: Stream, now: float, *, anywhere: bool) -> int | None:
        """Choose the engine that goes on with a stream that was handed back, or None if it had better wait.

        `anywhere`: it waits at an engine, if it has to.
        """
        prompt, fleet = self._prompt_again(stream), self.fleet
        try:
            placement = (
                fleet.choose(prompt, now, may_refuse=False)
                if anywhere
                else fleet.choose_with_room(prompt, now, fleet.endpoints)
            )
        except NoEngineError:
            return None
        self._share(placement, self._pickers[0], now)
        return int(placement.address)

    def _prompt_again(self, stream: Stream) -> Prompt:
        answered = stream.delivered
        return replace(self.prompt(stream.outcome.arrival), counted_tokens=answered, answered=answered)

    def _share(self, placement: Placement, chosen: SimulatedPicker, now: float) -> None:
        for picker in self._pickers:
            if picker is not chosen and self._delay < inf:
                picker.to_hear.append((now + self._delay, placement))

    def prompt(self, arrival: Arrival) -> Prompt:
        """Make what the picker would read from the request's body."""
        if arrival.prefix:
            self._texts += 1
            text = text_of(arrival, self._texts)
            return Prompt(1, len(text), 0, text)
        ratio = BYTES_PER_TOKEN * self._lengths.lognormvariate(0.0, SPREAD)
        return Prompt(1, round(arrival.prompt_tokens * ratio), 0)

    def observe(self, engine: int, now: float) -> LoadReport | None:
        """Have an engine's sidecar observe it."""
        return self._sidecars[engine].observe(now)

    def receive(self, engine: int, report: LoadReport, now: float) -> None:
        """Take in a load report that arrives at the gateway."""
        for picker in self._pickers:
            picker.catch_up(now).observe(self._addresses[engine], report, now)

    def record_finished(self, engine: int, outcome: Outcome, now: float) -> None:
        """Do nothing: the picker does not see answers."""

    def drop_engine(self, engine: int, _now: float) -> None:
        """Drop an engine whose pod is no longer ready."""
        left = self.fleet.endpoints.keys() - {self._addresses[engine]}
        for picker in self._pickers:
            picker.fleet.set_addresses(sorted(left, key=int))


class SimulatedRelay:
    """The relay before a gateway's engines, which has streams move; a `sim.fleet.Relay`."""

    interval = 0.1  # seconds between two looks for room, as of a relay
    surplus_interval = 1.0  # seconds between two questions of who shall hand over, likewise

    def __init__(self, gateway: SimulatedGateway, seed: int) -> None:
        self._gateway = gateway
        self._random = Random(seed)  # noqa: S311  (no secret)
        self._line: Line[Stream] = Line()
        self._looked_at = 0.0
        self._asked: dict[int, tuple[int, float]] = {}  # by outcome: what it had when last asked, and when

    def take_back(self, stream: Stream, now: float) -> None:
        """Take a stream that an engine handed back."""
        self._line.join(stream, stream.delivered, now)

    def moves(
        self, streams: Mapping[int, Sequence[Stream]], now: float
    ) -> Iterator[tuple[int | None, Stream, int]]:
        """Choose where those go on that were handed back, then whom engines shall hand over, and where to."""
        while (first := self._line.first(now)) is not None:
            target = self._gateway.choose_again(
                first, now, anywhere=self._line.waited(first, now) > MOST_WAIT
            )
            if target is None:
                break
            self._line.leave(first)
            yield None, first, target
        if now - self._looked_at < self.surplus_interval:
            return
        self._looked_at = now
        fleet = self._gateway.fleet
        for address, surplus in surpluses(fleet.candidates(now)).items():
            engine = int(address)
            there = {stream: self._progress(stream) for stream in streams[engine]}
            for stream in to_hand_over(there, surplus, now, self._random.random()):
                self._asked[id(stream.outcome)] = stream.delivered, now
                target = self._gateway.choose_other(stream, engine, surplus.reason, now)
                if target is not None:
                    yield engine, stream, target

    def _progress(self, stream: Stream) -> Progress:
        outcome = stream.outcome
        delivered, asked_at = self._asked.get(id(outcome), (0, outcome.arrival.at))
        return Progress(
            stream.tokens, stream.delivered - delivered, max(outcome.last_token_at or 0.0, asked_at)
        )


def text_of(arrival: Arrival, number: int) -> bytes:
    """Make a text that is equal where prefix ids are; past them no other is like that of `number`."""
    span = int(arrival.prefix_block * BYTES_PER_TOKEN)
    size = int(arrival.prompt_tokens * BYTES_PER_TOKEN)
    text = b"".join(b"%016x" % prefix_id * (span // 16) for prefix_id in arrival.prefix)[:size]
    return text + b"%-16d" % number * ((size - len(text)) // 16)
