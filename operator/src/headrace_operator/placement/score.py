"""How good a plan is: each of its groups estimated once, however many plans have it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import NamedTuple

from headrace_engine.contracts import Slo
from headrace_operator.placement.memory import divide_kv
from headrace_operator.placement.problem import (
    ATTAINMENT,
    Group,
    Nodes,
    Plan,
    Request,
    Seat,
    Service,
    count_engines,
    deal,
    unlike_services,
)
from headrace_operator.placement.shared_group import Answered, Load, serve_group
from headrace_operator.placement.step_times import StepTimes


@dataclass(slots=True)
class Standing:
    """How a service fares. `latency`: the sum of its requests' normalised latencies [SeaLLM, equation 1]."""

    requests: int
    met: int = 0
    latency: float = 0.0
    engines: int = 0

    @property
    def mean_latency(self) -> float:
        """Normalised latency: E2E over the mean time that a request takes alone on the fewest GPUs."""
        return self.latency / self.requests if self.requests else 0.0

    @property
    def attainment(self) -> float:
        """Share of the requests that met their targets; 1 if there are none."""
        return self.met / self.requests if self.requests else 1.0

    @property
    def unserved(self) -> tuple[int, float]:
        """Requests that did not meet their targets, then the latency [SeaLLM, equation 6]."""
        return self.requests - self.met, self.mean_latency


class Score(NamedTuple):
    """What less of is better: services without an engine, or with unlike ones that must be alike, then
    requests by which services fall short of `ATTAINMENT`, then mean normalised latency [SeaLLM, equations 3,
    5 and 2].
    """

    unplaced: float
    short: float
    latency: float


_Sums = tuple[tuple[int, float], ...]
"""Of each seat of a group: how many requests met their targets, and the sum of normalised latencies."""


class FitsNowhereError(ValueError):
    """A service that not even a whole node has the memory for, or that has no cost model for any size."""

    def __init__(self, service: Service, nodes: Nodes) -> None:
        sizes = ", ".join(map(str, sorted(service.costs))) or "none"
        super().__init__(
            f"{service.name}: fits no node: on {nodes.most_gpus} GPUs no memory is left for a KV cache of "
            f"{service.longest} tokens beside its weights (sizes with a cost model: {sizes}); "
            "use nodes with more GPUs or a smaller maxModelLen"
        )


class Scorer:
    """Scores plans for `services` on `nodes`; raises FitsNowhereError.

    `alike`: each service's engines must be alike, as those of one Deployment are.
    """

    def __init__(self, services: Sequence[Service], nodes: Nodes, *, alike: bool = False) -> None:
        self.services = tuple(services)
        self.nodes = nodes
        self.alike = alike
        self.estimated = 0  # requests so far, each time that their group was estimated
        self._groups: dict[tuple[int, tuple[Seat, ...]], _Sums] = {}
        self._kv: dict[Group, list[int] | None] = {}
        self._times = [
            {size: StepTimes(cost, service.step_tokens) for size, cost in service.costs.items()}
            for service in services
        ]
        self.fewest = _smallest_sizes(self)
        alone = [
            {size: each.alone(service.requests) for size, each in times.items()}
            for service, times in zip(services, self._times, strict=True)
        ]
        self._alone = [by_size[size] for by_size, size in zip(alone, self.fewest, strict=True)]
        self._mean_alone = [
            {size: fmean(each) if each else inf for size, each in by_size.items()} for by_size in alone
        ]

    def on(self, nodes: Nodes) -> Scorer:
        """Score plans on other nodes with the same kind of GPUs; what was estimated is known to both.

        Raises FitsNowhereError.
        """
        found = copy(self)
        found.nodes = nodes
        found.fewest = _smallest_sizes(found)
        return found

    def kv_tokens(self, group: Group) -> list[int]:
        """Return the tokens of KV for each member, in order; ValueError if the group does not fit."""
        found = self._kv_of(group)
        if found is None:
            raise ValueError(f"a group that does not fit: {group}")
        return found

    def fits(self, group: Group) -> bool:
        """Tell whether the group's GPUs have the memory for its members."""
        return self._kv_of(group) is not None

    def standings(self, plan: Plan) -> list[Standing]:
        """Estimate how each service fares, in order; ValueError if a group does not fit."""
        engines = count_engines(plan)
        found = [
            Standing(len(service.requests), engines=engines[number])
            for number, service in enumerate(self.services)
        ]
        dealt = deal([group.members for group in plan])
        for group, seats in zip(plan, dealt, strict=True):
            for seat, (met, latency) in zip(seats, self._estimate(group, seats), strict=True):
                found[seat.service].met += met
                found[seat.service].latency += latency
        return found

    def score(self, plan: Plan) -> Score:
        """Score the plan; ValueError if a group does not fit."""
        score = sum_up(self.standings(plan))
        return score._replace(unplaced=score.unplaced + len(unlike_services(plan))) if self.alike else score

    def _kv_of(self, group: Group) -> list[int] | None:
        if group not in self._kv:
            self._kv[group] = divide_kv(group, self.services, self.nodes)
        return self._kv[group]

    def _estimate(self, group: Group, seats: tuple[Seat, ...]) -> _Sums:
        key = (group.gpus, seats)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = self._serve(group, seats)
        return found

    def _serve(self, group: Group, seats: tuple[Seat, ...]) -> _Sums:
        loads = [
            Load(
                seat.take(self.services[seat.service].requests),
                self._times[seat.service][group.gpus],
                tokens,
                self.services[seat.service].most_running,
                self._mean_alone[seat.service][group.gpus],
            )
            for seat, tokens in zip(seats, self.kv_tokens(group), strict=True)
        ]
        self.estimated += sum(len(load.requests) for load in loads)
        return tuple(
            self._sum(seat, load, answered)
            for seat, load, answered in zip(seats, loads, serve_group(loads), strict=True)
        )

    def _sum(self, seat: Seat, load: Load, answered: Sequence[Answered]) -> tuple[int, float]:
        service = self.services[seat.service]
        alone = seat.take(self._alone[seat.service])
        mean = self._mean_alone[seat.service][self.fewest[seat.service]]
        met, latency = 0, 0.0
        for request, answer, seconds in zip(load.requests, answered, alone, strict=True):
            met += meets(answer, request, service.slo, seconds)
            latency += answer.e2e / mean
        return met, latency


def _smallest_sizes(scorer: Scorer) -> list[int]:
    """Return the fewest GPUs that each service's engine fits on; raises FitsNowhereError."""
    found = []
    for number, service in enumerate(scorer.services):
        sizes = (size for size in sorted(service.costs) if size <= scorer.nodes.most_gpus)
        size = next((size for size in sizes if scorer.fits(Group(size, (number,)))), None)
        if size is None:
            raise FitsNowhereError(service, scorer.nodes)
        found.append(size)
    return found


def sum_up(standings: Sequence[Standing]) -> Score:
    """Sum up what all services have."""
    requests = sum(each.requests for each in standings)
    return Score(
        sum(not each.engines for each in standings),
        sum(max(ATTAINMENT * each.requests - each.met, 0.0) for each in standings),
        sum(each.latency for each in standings) / requests,
    )


def meets(answer: Answered, request: Request, slo: Slo, alone: float) -> bool:
    """Tell whether an answer meets all targets that there are; `alone`: seconds that the request takes so."""
    tpot = (answer.e2e - answer.ttft) / max(request.output_tokens - 1, 1)
    return (
        (slo.ttft_ms is None or answer.ttft * 1000 <= slo.ttft_ms)
        and (slo.tpot_ms is None or tpot * 1000 <= slo.tpot_ms)
        and (slo.e2e_ms is None or answer.e2e * 1000 <= slo.e2e_ms)
        and (slo.e2e_scale_percent is None or answer.e2e <= slo.e2e_scale_percent / 100 * alone)
    )
