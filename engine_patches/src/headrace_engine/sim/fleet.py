"""Several engines behind a gateway, all on one virtual clock.

The loop only moves the clock from event to event: a request reaches the gateway, reaches its engine, a step
ends, a sidecar observes its engine, a report reaches the gateway, an engine is lost. What the gateway decides
and what a sidecar reports is the `Gateway`'s part, so that the product's own code can be run here without
being imported.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from random import Random
from typing import Any, Protocol, cast, runtime_checkable

from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival


class Engine(Protocol):
    """What a fleet needs of an engine; times are seconds from 0."""

    @property
    def next_event_at(self) -> float:
        """When the step in progress ends; infinity while idle."""

    def advance(self) -> Iterable[Outcome]:
        """Carry out what is due at `next_event_at`; gives the requests that it finished."""

    def add(self, arrival: Arrival, now: float) -> Outcome:
        """Take a request at `now`; its outcome fills in as it is served."""

    def fail(self) -> Sequence[Outcome]:
        """End the engine for good; gives the requests that are lost with it."""


class MovableEngine(Engine, Protocol):
    """An engine whose streams can move; what it tells of one is its own kind, as others take it."""

    handed_back: list[Any]
    """Streams that it gave back, and that nobody has taken yet."""

    def streams(self) -> Sequence[Any]:
        """List the streams that could move."""

    def leave(self, stream: Any) -> None:
        """End a stream here."""

    def go_on(self, stream: Any, now: float) -> None:
        """Go on with a stream that left another engine."""


class Gateway(Protocol):
    """What decides where requests go; times are seconds from 0."""

    def choose(self, arrival: Arrival, now: float) -> int | None:
        """Choose the engine (its index) for a request, or None to refuse it."""

    def observe(self, engine: int, now: float) -> object | None:
        """Have an engine's sidecar observe it; returns what it tells the gateway, None for nothing."""

    def receive(self, engine: int, report: Any, now: float) -> None:
        """Take in what `observe` told, which has reached the gateway."""

    def record_finished(self, engine: int, outcome: Outcome, now: float) -> None:
        """Take in that the last token of a request passed the gateway."""

    def drop_engine(self, engine: int, now: float, /) -> None:
        """Take in that an engine is lost."""


@runtime_checkable
class StreamListener(Protocol):
    """A gateway that also sees answers begin: all of them are streamed."""

    def record_first_token(self, engine: int, outcome: Outcome, now: float) -> None:
        """Take in that the first token of a request passed the gateway."""


class Relay(Protocol):
    """What decides which streams move from one engine to another."""

    interval: float  # seconds between two looks

    def take_back(self, stream: Any, now: float) -> None:
        """Take a stream that an engine handed back, until there is one that goes on with it."""

    def moves(
        self, streams: Mapping[int, Sequence[Any]], now: float
    ) -> Iterable[tuple[int | None, Any, int]]:
        """Choose from the streams that each engine has: where one is, which, and where it goes on.

        Those that were taken back are nowhere.
        """


@dataclass(frozen=True, slots=True)
class Failure:
    """Engine number `engine` is lost at `at` seconds."""

    at: float
    engine: int


@dataclass(frozen=True, slots=True)
class Network:
    """Delays in seconds; the defaults are those of the product on one cluster network.

    `interval`: between two observations of a sidecar. `hop`: gateway to engine, and sidecar to gateway.
    `detection`: from an engine's loss until the gateway knows (a pod's readiness and the watch on it).
    """

    interval: float = 0.05
    hop: float = 0.001
    detection: float = 1.0


@dataclass(slots=True)
class FleetRun:
    """What a fleet did: an outcome for each arrival in their order, None where it was refused."""

    outcomes: list[Outcome | None]
    duration: float  # seconds until the last event
    reports: int
    moved: int  # times that a stream moved
    choices: str  # sha256 hex of which engine each request went to


def simulate_fleet(
    arrivals: Sequence[Arrival],
    engines: Sequence[Engine],
    gateway: Gateway,
    *,
    network: Network = Network(),
    failures: Iterable[Failure] = (),
    relay: Relay | None = None,
    seed: int = 0,
) -> FleetRun:
    """Serve `arrivals` (sorted) to the end. `seed` sets when in its interval each sidecar observes.

    With a `relay`, engines have to be a `MovableEngine` each.
    """
    loop = _Loop(arrivals, engines, gateway, network)
    if relay is not None:
        loop.push(relay.interval, loop.move, relay)
    random = Random(seed)  # noqa: S311  (no secret)
    for engine in range(len(engines)):
        loop.push(random.random() * network.interval, loop.observe, engine)
    for failure in failures:
        loop.push(failure.at, loop.fail, failure.engine)
    return loop.run()


@dataclass(slots=True)
class _Loop:
    arrivals: Sequence[Arrival]
    engines: Sequence[Engine]
    gateway: Gateway
    network: Network
    heap: list[tuple[float, int, Any, Any]] = field(default_factory=list)
    order: Any = field(default_factory=count)
    planned: list[float] = field(default_factory=list)  # by engine: the event that is on the heap
    failed: set[int] = field(default_factory=set)
    outcomes: list[Outcome | None] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    listener: StreamListener | None = None
    silent: dict[int, list[Outcome]] = field(default_factory=dict)  # by engine: no token yet, if one listens
    unfinished: int = 0  # requests between their arrival and their end
    reports: int = 0
    moved: int = 0
    now: float = 0.0

    @property
    def movable(self) -> Sequence[MovableEngine]:
        return cast("Sequence[MovableEngine]", self.engines)

    def push(self, at: float, act: Any, what: Any) -> None:
        heapq.heappush(self.heap, (at, next(self.order), act, what))

    def run(self) -> FleetRun:
        self.planned = [inf] * len(self.engines)
        self.listener = self.gateway if isinstance(self.gateway, StreamListener) else None
        self.outcomes = [None] * len(self.arrivals)
        if self.arrivals:
            self.push(self.arrivals[0].at, self.arrive, 0)
            self.unfinished = len(self.arrivals)
        while self.unfinished:
            self.now, _, act, what = heapq.heappop(self.heap)
            act(what)
        digest = hashlib.sha256(",".join(map(str, self.choices)).encode()).hexdigest()
        return FleetRun(self.outcomes, self.now, self.reports, self.moved, digest)

    def arrive(self, number: int) -> None:
        if number + 1 < len(self.arrivals):
            self.push(self.arrivals[number + 1].at, self.arrive, number + 1)
        engine = self.gateway.choose(self.arrivals[number], self.now)
        self.choices.append(-1 if engine is None else engine)
        if engine is None:
            self.unfinished -= 1
        else:
            self.push(self.now + self.network.hop, self.deliver, (number, engine))

    def deliver(self, what: tuple[int, int]) -> None:
        number, engine = what
        if engine in self.failed:
            self.unfinished -= 1
            self.outcomes[number] = Outcome(self.arrivals[number], engine)
            return
        outcome = self.outcomes[number] = self.engines[engine].add(self.arrivals[number], self.now)
        if self.listener is not None:
            self.silent.setdefault(engine, []).append(outcome)
        self.plan(engine)

    def plan(self, engine: int) -> None:
        at = self.engines[engine].next_event_at
        if at != self.planned[engine]:
            self.planned[engine] = at
            if at < inf:
                self.push(at, self.step, (engine, at))

    def step(self, what: tuple[int, float]) -> None:
        engine, at = what
        if self.planned[engine] != at:
            return
        self.planned[engine] = inf
        finished = self.engines[engine].advance()
        if self.listener is not None:
            finished = list(finished)
            self.tell_first_tokens(engine, self.listener)
        for outcome in finished:
            self.unfinished -= 1
            self.gateway.record_finished(engine, outcome, self.now)
        self.plan(engine)

    def tell_first_tokens(self, engine: int, listener: StreamListener) -> None:
        waiting = self.silent.get(engine, [])
        self.silent[engine] = [outcome for outcome in waiting if outcome.first_token_at is None]
        if len(self.silent[engine]) < len(waiting):
            for outcome in waiting:
                if outcome.first_token_at is not None:
                    listener.record_first_token(engine, outcome, self.now)

    def move(self, relay: Relay) -> None:
        engines = self.movable
        streams = {
            number: engine.streams() for number, engine in enumerate(engines) if number not in self.failed
        }
        for number in streams:
            while engines[number].handed_back:
                relay.take_back(engines[number].handed_back.pop(0), self.now)
        for source, stream, target in relay.moves(streams, self.now):
            self.moved += 1
            if source is not None:
                engines[source].leave(stream)
            self.push(self.now + self.network.hop, self.go_on, (stream, target))
        self.push(self.now + relay.interval, self.move, relay)

    def go_on(self, what: tuple[Any, int]) -> None:
        stream, target = what
        if target in self.failed:
            self.unfinished -= 1
            return
        self.movable[target].go_on(stream, self.now)
        self.plan(target)

    def observe(self, engine: int) -> None:
        if engine in self.failed:
            return
        report = self.gateway.observe(engine, self.now)
        if report is not None:
            self.reports += 1
            self.push(self.now + self.network.hop, self.receive, (engine, report))
        self.push(self.now + self.network.interval, self.observe, engine)

    def receive(self, what: tuple[int, object]) -> None:
        engine, report = what
        if engine not in self.failed:
            self.gateway.receive(engine, report, self.now)

    def fail(self, engine: int) -> None:
        if engine in self.failed:
            return
        self.failed.add(engine)
        self.planned[engine] = inf
        self.unfinished -= len(self.engines[engine].fail())
        self.push(self.now + self.network.detection, self.forget, engine)

    def forget(self, engine: int) -> None:
        self.gateway.drop_engine(engine, self.now)
