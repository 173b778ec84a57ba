"""A pool with its services over a day: the operator's own plans, adoption and moves, in virtual time.

What becomes of the requests of each ten minutes is estimated as plans are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from e2e.bench.replacement.day_traffic import DAY, DayTraffic
from e2e.bench.traffic_sums import BEGIN
from headrace_engine.cost import catalog
from headrace_operator.api import API_VERSION, POOL_KIND, parse_pool, parse_service
from headrace_operator.api.bodies import JsonObject
from headrace_operator.api.placement import PlacementStatus, PlanStatus
from headrace_operator.decide.adoption import adopt
from headrace_operator.decide.moves import Mover, Moves, plan_moves
from headrace_operator.decide.places import place_of, put_as_planned
from headrace_operator.placement.problem import Group, Nodes, Plan, make_plan
from headrace_operator.placement.score import Scorer
from headrace_operator.planning.answer import make_answer
from headrace_operator.planning.question import Question, ServiceTraffic
from headrace_operator.simulate.pool.pool_service import PoolService, read_service
from headrace_operator.simulate.simulated_engine import RESERVED, UTILIZATION

GPU = "H100"
STEP = 600  # seconds that are estimated at a time
MOVE_SECONDS = 200  # until an engine that is moved is ready
HOUR = 3600
FIRST_INTERVAL = 1800  # seconds between two plans, where the interval adapts
UNEXPECTED = 0.05  # of requests that are in time: how far from what was expected is another traffic


@dataclass
class Tally:
    """What became of the requests so far."""

    asked: Counter[str] = field(default_factory=Counter)  # by service
    met: Counter[str] = field(default_factory=Counter)
    refused: int = 0  # that came while their service had no engine
    latency: float = 0.0  # sum of normalised latencies
    gpu_seconds: float = 0.0
    moves: int = 0
    worst: float = 1.0  # share of all requests of ten minutes that met their targets


class ReplayedPool:
    """Services that begin each on GPUs of its own. `gpus`: of the one node that all are on."""

    def __init__(self, services: Sequence[DayTraffic], gpus: int) -> None:
        self._services = services
        self._gpus = gpus
        self._bodies = {each.name: each.as_body() for each in services}
        self._simulated = [read_simulated(each) for each in services]
        self._nodes = Nodes((gpus,), int(catalog.gpu_bytes(GPU) * UTILIZATION), RESERVED)
        self._body: JsonObject = {
            "apiVersion": API_VERSION,
            "kind": POOL_KIND,
            "metadata": {"name": "pool", "namespace": "default", "uid": "pool", "generation": 1},
            "spec": {
                "placement": {
                    "mode": "Auto",
                    "gpus": {"type": GPU, "perNode": gpus, "count": gpus},
                    "services": [{"name": each.name, "costModel": each.model} for each in services],
                }
            },
        }
        self._placement: PlacementStatus | None = None
        self._runs = {each.name: place_of(parse_service(each.as_body())) for each in services}
        self.tally = Tally()

    def plan(self, start: float, end: float, now: float) -> float | None:
        """Have a plan made of what was asked in an hour at most, and take it up if it is worth it.

        Returns the share of those requests that would have been in time where services are to run now.
        """
        told = tuple(
            ServiceTraffic(self._bodies[each.name], each.told(start, end)) for each in self._services
        )
        answer = make_answer(Question(self._pool_body(), told, _time(now)))
        if answer.plan is None:
            return None
        before = self._placement
        self._placement = adopt(before, answer.plan, _time(now))
        return _expected(answer.plan, as_today=self._placement is before)

    def move(self) -> dict[str, set[int]]:
        """Move services for ten minutes; returns when each has no engine, in spans of `MOVE_SECONDS`."""
        away: dict[str, set[int]] = {each.name: set() for each in self._services}
        for span in range(STEP // MOVE_SECONDS):
            moves = self._plan_moves()
            if moves.down and not moves.moving:
                self._settle(moves)
                moves = self._plan_moves()
            for name, runs in self._runs.items():
                if not runs.replicas or name in moves.down or name in {*moves.moving} - moves.surging:
                    away[name].add(span)
            self._settle(moves)
            self.tally.moves += len(moves.moving)
        return away

    def _plan_moves(self) -> Moves:
        return plan_moves(self._movers(), self._gpus)

    def _settle(self, moves: Moves) -> None:
        """Have all engines where they are to be, and ready."""
        for mover in self._movers():
            if mover.wanted is None or mover.runs is None:
                raise ValueError(f"{mover.name} has no place")
            is_free, replicas = mover.name in moves.free, mover.wanted.replicas
            place = mover.wanted if is_free else moves.place_meanwhile(mover.name, mover.runs, replicas)
            self._runs[mover.name] = place

    def serve(self, start: float, away: dict[str, set[int]]) -> None:
        """Count what becomes of the requests of ten minutes, by where engines are at their end."""
        asked = {each.name: each.between(start, start + STEP) for each in self._services}
        served = {
            name: tuple(each for each in requests if each.at // MOVE_SECONDS not in away[name])
            for name, requests in asked.items()
        }
        services = [each.as_placed(served[each.name]) for each in self._simulated]
        standings = Scorer(services, self._nodes).standings(self._plan()) if any(served.values()) else ()
        for service, standing in zip(services, standings, strict=False):
            self.tally.met[service.name] += standing.met
            self.tally.latency += standing.latency
        self.tally.asked.update({name: len(requests) for name, requests in asked.items()})
        total, met = sum(map(len, asked.values())), sum(standing.met for standing in standings)
        self.tally.refused += total - sum(map(len, served.values()))
        self.tally.gpu_seconds += STEP * sum(group.gpus for group in self._plan())
        if total:
            self.tally.worst = min(self.tally.worst, met / total)

    def _movers(self) -> list[Mover]:
        pool = parse_pool(self._pool_body())
        movers = []
        for placed in pool.placed:
            group = pool.group_of(placed.name)
            claim = f"{group.name}-{placed.tensor_parallel_size}" if group else None
            service = put_as_planned(parse_service(self._bodies[placed.name]), placed)
            wanted = place_of(replace(service, group_claim=claim))
            movers.append(Mover(placed.name, wanted, self._runs[placed.name], settled=True))
        return movers

    def _plan(self) -> Plan:
        sharing: dict[str, list[int]] = {}
        groups = []
        for number, place in enumerate(self._runs.values()):
            if place.claim is None:
                groups += [Group(place.gpus, (number,))] * place.replicas
            elif place.replicas:
                sharing.setdefault(place.claim, []).append(number)
        runs = list(self._runs.values())
        groups += [Group(runs[members[0]].gpus, tuple(members)) for members in sharing.values()]
        return make_plan(groups)

    def _pool_body(self) -> JsonObject:
        if self._placement is None:
            return self._body
        return {**self._body, "status": {"placement": self._placement.as_body()}}


def _expected(plan: PlanStatus, *, as_today: bool) -> float | None:
    """Return the share of all requests that are in time as planned or as today; None if that is unknown."""
    met, asked = 0.0, 0
    for service in plan.services:
        percent = service.today_percent if as_today else service.planned_percent
        if percent is None:
            return None
        met += percent / 100 * service.requests
        asked += service.requests
    return met / asked if asked else None


def read_simulated(service: DayTraffic) -> PoolService:
    """Return the service as it is estimated."""
    return read_service(parse_service(service.as_body()), service.model, GPU)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(BEGIN + seconds, UTC).isoformat()


@dataclass(frozen=True, slots=True)
class Setting:
    """A pool of services on their own GPUs as the second of two days begins; `hours` of that are run."""

    services: Sequence[DayTraffic]
    gpus: int
    hours: int = 24

    @property
    def end(self) -> int:
        """When the last hour ends, in seconds since the first day began."""
        return DAY + self.hours * HOUR

    def begin(self) -> ReplayedPool:
        """Make the pool."""
        return ReplayedPool(self.services, self.gpus)


def replay_dedicated(setting: Setting) -> Tally:
    """Run the day with all on GPUs of their own."""
    return _serve(setting.begin(), DAY, setting.end)


def replay_planned(setting: Setting, hour: float) -> Tally:
    """Run the day by one plan, made of the hour of the day before that begins at `hour`."""
    pool = setting.begin()
    pool.plan(hour, hour + HOUR, DAY)
    return _serve(pool, DAY, setting.end)


def replay_auto(setting: Setting, every: int) -> Tally:
    """Run the day as the operator does it, with a plan every so many seconds."""
    pool = setting.begin()
    for start in range(DAY, setting.end, every):
        pool.plan(start - HOUR, start, start)
        _serve(pool, start, start + every)
    return pool.tally


def replay_adaptive(setting: Setting) -> Tally:
    """Run the day with plans at intervals that change, each by what was asked in the interval before it.

    [SeaLLM, section 4.3: shorter where what was expected did not come true; factor, threshold and bounds are
    ours.]
    """
    pool, start, interval = setting.begin(), DAY, FIRST_INTERVAL
    while start < setting.end:
        expected = pool.plan(start - interval, start, start)
        met, asked = pool.tally.met.total(), pool.tally.asked.total()
        end = min(start + interval, setting.end)
        _serve(pool, start, end)
        asked = pool.tally.asked.total() - asked
        if expected is not None and asked:
            achieved = (pool.tally.met.total() - met) / asked
            interval = interval // 2 if abs(expected - achieved) > UNEXPECTED else 2 * interval
            interval = min(max(interval // STEP * STEP, STEP), HOUR)
        start = end
    return pool.tally


def _serve(pool: ReplayedPool, start: int, end: int) -> Tally:
    for step in range(start, end, STEP):
        pool.serve(step, pool.move())
    return pool.tally
