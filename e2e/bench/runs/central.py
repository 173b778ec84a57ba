"""A queue before all engines, from which requests go out for a slice at a time: slices across engines.

What the SCLS paper proposes for continuous batching (section 7): a request that has had a slice goes back,
and on at an engine with more free memory, so that a long one holds no engine's memory while others wait.
Here it goes back only where somebody waits for it. The queue sees each engine as it is at the moment; a
gateway would see it as of its last report.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from headrace_engine.policies.slices import count_slices
from headrace_engine.sim.engine import SimulatedEngine, Stream
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_gateway.simulated import SimulatedGateway


class Queue:
    """The requests that wait before all engines; to a simulated fleet an engine that never computes."""

    next_event_at = inf

    def __init__(self, number: int) -> None:
        self._number = number
        self._held: dict[int, Stream] = {}  # by outcome

    def add(self, arrival: Arrival, now: float) -> Outcome:  # noqa: ARG002
        """Take a request that has just arrived."""
        outcome = Outcome(arrival, self._number)
        self._held[id(outcome)] = Stream("", outcome, arrival.prompt_tokens, 0)
        return outcome

    def go_on(self, stream: Stream, now: float) -> None:  # noqa: ARG002
        """Take a stream that left an engine."""
        self._held[id(stream.outcome)] = stream

    def streams(self) -> Sequence[Stream]:
        """List all that wait."""
        return list(self._held.values())

    def leave(self, stream: Stream) -> None:
        """Let a stream go to an engine."""
        del self._held[id(stream.outcome)]

    def advance(self) -> Iterable[Outcome]:
        """Do nothing: nothing is ever due."""
        return ()

    def fail(self) -> Sequence[Outcome]:
        """Lose all that wait."""
        return [stream.outcome for stream in self._held.values()]


@dataclass(slots=True)
class Progress:
    """What a stream has had. `slices`: ended. `began`: tokens of its answer as its last one began."""

    slices: int = 0
    began: int = 0
    back_at: float = inf  # in the queue since then


Streams = Mapping[int, Sequence[Stream]]
"""By number of the engine that has them."""


class CentralGateway:
    """Gateway and relay of a fleet whose requests wait before the engines; its last engine is the `Queue`.

    An engine has room for a request if the KV of all its requests, and of those on their way, leaves as much
    as this one takes. If the first of the queue finds none, an engine loses those that have had more slices.
    `tokens`: of the first slice; each further one of a request is twice as long.
    """

    interval = 0.05  # seconds between two looks, as between two reports of an engine

    def __init__(self, balancer: SimulatedGateway, engines: Sequence[SimulatedEngine], tokens: int) -> None:
        self._balancer = balancer
        self._engines = engines
        self._tokens = tokens
        self._progress: dict[int, Progress] = defaultdict(Progress)  # by outcome
        self._sent: list[tuple[float, int, int]] = []  # when, to which engine, for how many blocks
        self._waiting = 0

    def choose(self, arrival: Arrival, now: float) -> int:
        """Choose the engine as the balancer does if nobody waits and one has room, else the queue."""
        if not self._waiting:
            stream = Stream("", Outcome(arrival), arrival.prompt_tokens, 0)
            there = {number: engine.streams() for number, engine in enumerate(self._engines)}
            engine = self._place(stream, self._rooms(there, now), now)
            if engine is not None:
                return engine
        self._waiting += 1
        return len(self._engines)

    def moves(self, streams: Streams, now: float) -> Iterator[tuple[int, Stream, int]]:
        """Take back who was preempted; send out who waits, in turn, while there is room or cuts make some.

        Yields where a stream is, which it is, and where it goes.
        """
        queue = len(self._engines)
        there = {number: list(streams[number]) for number in range(queue)}
        waiting = [(queue, stream) for stream in streams[queue]]
        for number in range(queue):
            for stream in _preempted(self._engines[number], there[number]):
                there[number].remove(stream)
                self._put_back(stream, self._progress_of(stream).slices, now)
                waiting.append((number, stream))
        rooms = self._rooms(there, now)
        turns = deque(sorted(waiting, key=lambda each: self._rank(each[1])))
        while turns:
            source, stream = turns[0]
            target = self._place(stream, rooms, now)
            if target is None:
                engine, victims = self._victims(stream, there)
                for victim in victims:
                    there[engine].remove(victim)
                    rooms[engine] = self._room(engine, there[engine])
                    self._put_back(victim, self._slices(victim), now)
                    yield engine, victim, queue
                target = self._place(stream, rooms, now)
            if target is None:
                break
            turns.popleft()
            if source != target:
                yield source, stream, target
        self._waiting = len(turns)
        for source, stream in turns:
            if source != queue:
                yield source, stream, queue

    def _progress_of(self, stream: Stream) -> Progress:
        return self._progress[id(stream.outcome)]

    def _put_back(self, stream: Stream, slices: int, now: float) -> None:
        self._progress[id(stream.outcome)] = Progress(slices, stream.delivered, now)

    def _rank(self, stream: Stream) -> tuple[int, float]:
        """Say when a stream's turn is: who has had fewest slices goes first, equals as they came."""
        progress = self._progress_of(stream)
        return progress.slices, progress.back_at if progress.slices else stream.outcome.arrival.at

    def _slices(self, stream: Stream) -> int:
        """Count the slices that it has ended, and those that its tokens since it last began make up."""
        progress = self._progress_of(stream)
        since = stream.delivered - progress.began
        return progress.slices + count_slices(since, self._tokens << progress.slices)

    def _victims(self, first: Stream, there: Streams) -> tuple[int, list[Stream]]:
        """Choose an engine and whom it loses so that the first can start, where least is computed again.

        Those that have had most slices go first, of equals who came to the engine last.
        """
        options: list[tuple[int, int, list[Stream]]] = []
        for number, streams in there.items():
            left = sorted(streams, key=self._slices)
            victims: list[Stream] = []
            while left and self._slices(left[-1]) > self._progress_of(first).slices:
                victims.append(left.pop())
                if self._room(number, left) >= self._blocks(first):
                    options.append((sum(victim.tokens for victim in victims), number, victims))
                    break
        return min(options, key=lambda option: option[:2], default=(0, 0, []))[1:]

    def _place(self, stream: Stream, rooms: dict[int, int], now: float) -> int | None:
        """Send a request to an engine with room: as the balancer chooses at first, then by free memory."""
        needed = self._blocks(stream)
        among = [number for number, room in rooms.items() if room >= needed]
        if not among:
            return None
        if stream.delivered:
            chosen = max(among, key=rooms.__getitem__)
        else:
            prompt, addresses = self._balancer.prompt(stream.outcome.arrival), {str(each) for each in among}
            chosen = int(self._balancer.fleet.choose(prompt, now, among=addresses, may_refuse=False).address)
        rooms[chosen] -= needed
        self._sent.append((now, chosen, needed))
        return chosen

    def _rooms(self, there: Streams, now: float) -> dict[int, int]:
        """Return each engine's KV blocks that neither its requests take nor those on their way."""
        self._sent = [each for each in self._sent if now - each[0] < self.interval]
        return {number: self._room(number, streams) for number, streams in there.items()}

    def _room(self, number: int, streams: Sequence[Stream]) -> int:
        settings = self._engines[number].settings
        sent = [blocks for _, engine, blocks in self._sent if engine == number]
        if len(streams) + len(sent) >= settings.max_num_seqs:
            return -1
        return settings.num_blocks - 1 - sum(sent) - sum(map(self._blocks, streams))

    def _blocks(self, stream: Stream) -> int:
        return ceil((stream.tokens + 1) / self._engines[0].settings.block_size)

    def observe(self, engine: int, now: float) -> object | None:
        """Have an engine's sidecar observe it; the queue has none."""
        return self._balancer.observe(engine, now) if engine < len(self._engines) else None

    def receive(self, engine: int, report: Any, now: float) -> None:
        """Take in a load report."""
        self._balancer.receive(engine, report, now)

    def record_finished(self, engine: int, outcome: Outcome, now: float) -> None:
        """Do nothing: what ended shows in the engines."""

    def drop_engine(self, engine: int, now: float) -> None:
        """Drop an engine that is lost."""
        self._balancer.drop_engine(engine, now)


def _preempted(engine: SimulatedEngine, streams: Sequence[Stream]) -> list[Stream]:
    """List the streams that wait at their engine because it preempted them: they have no memory to lose."""
    waits = {request.request_id for request in engine.scheduler.waiting}
    return [stream for stream in streams if stream.name in waits and stream.outcome.preemptions]
