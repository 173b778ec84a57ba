"""What is to be placed and where, and what a plan is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from headrace_engine.contracts import Slo
from headrace_engine.cost.model import CostModel

ATTAINMENT = 0.9  # share of each service's requests that shall meet its targets [SeaLLM, equation 5]
SAME_SHARE = 0.01  # shares closer than this are taken as equal

_Item = TypeVar("_Item")


class Request(NamedTuple):
    """One recorded request: when it came, in seconds, and how long it was."""

    at: float
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """Prompt and output together."""
        return self.prompt_tokens + self.output_tokens

    @property
    def mean_context(self) -> float:
        """Tokens of KV that it holds on average while it decodes."""
        return self.prompt_tokens + self.output_tokens / 2


@dataclass(frozen=True)
class Service:
    """A service to place. Sizes are numbers of GPUs that an engine is split over (tensor parallelism)."""

    name: str
    requests: tuple[Request, ...]  # what it was asked, by time
    costs: Mapping[int, CostModel]  # how long its steps take, by size; it can have no other
    weight_bytes: int
    kv_bytes_per_token: int  # over all GPUs of an engine
    longest: int  # tokens of prompt and output, for which each engine needs KV
    slo: Slo
    step_tokens: int  # that a step may process
    most_running: int  # requests at a time (--max-num-seqs)

    @cached_property
    def kv_demand(self) -> float:
        """Bytes of KV that all requests hold, times the steps for which they do."""
        tokens = sum(each.mean_context * each.output_tokens for each in self.requests)
        return tokens * self.kv_bytes_per_token


@dataclass(frozen=True, slots=True)
class Nodes:
    """GPUs of one kind. `usable_bytes`: of a GPU's memory, for engines; `reserved_bytes` of it, for each
    engine on the GPU, go neither to weights nor to KV.
    """

    gpus: tuple[int, ...]  # of each node
    usable_bytes: int
    reserved_bytes: int

    @property
    def most_gpus(self) -> int:
        """GPUs of the largest node, over which an engine can be split."""
        return max(self.gpus)

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(self.gpus)

    def first(self, gpus: int) -> Nodes:
        """Return so many of their GPUs: whole nodes, and what is left of the next."""
        taken: list[int] = []
        for of_node in self.gpus:
            taken.append(min(of_node, gpus - sum(taken)))
        return replace(self, gpus=tuple(filter(None, taken)))


class Group(NamedTuple):
    """Engines that share `gpus` GPUs of a node by turns, each split over all of them.

    `members`: indexes of their services, ascending; one alone has the GPUs to itself.
    """

    gpus: int
    members: tuple[int, ...]

    def joined_by(self, service: int) -> Group:
        """Return the group with one member more."""
        return Group(self.gpus, tuple(sorted((*self.members, service))))

    def left_by(self, service: int) -> Group:
        """Return the group with one member less."""
        return Group(self.gpus, tuple(member for member in self.members if member != service))


class Seat(NamedTuple):
    """A service's engine in a group: which of so many equal parts of its requests it is sent."""

    service: int
    part: int
    parts: int

    def take(self, requests: Sequence[_Item]) -> Sequence[_Item]:
        """Return its part of all requests of the service."""
        return requests[self.part :: self.parts]


Plan = tuple[Group, ...]
"""Groups in order, the largest first. A service in several has an engine in each, with an equal part of its
requests."""


def make_plan(groups: list[Group]) -> Plan:
    """Put groups in order."""
    return tuple(sorted(groups, key=lambda group: (-group.gpus, group.members)))


def count_engines(groups: Iterable[Group]) -> Counter[int]:
    """Count the engines of each service."""
    return Counter(member for group in groups for member in group.members)


def unlike_services(plan: Plan) -> set[int]:
    """Return the services that no single Deployment can run: with engines beside others', and also elsewhere.

    A service in several groups is alike in all if it has each to itself, and all are of one size.
    """
    groups: dict[int, list[Group]] = {}
    for group in plan:
        for member in group.members:
            groups.setdefault(member, []).append(group)
    return {
        service
        for service, found in groups.items()
        if len(found) > 1 and (len(set(found)) > 1 or len(found[0].members) > 1)
    }


def deal(groups: Sequence[Sequence[int]]) -> list[tuple[Seat, ...]]:
    """Deal each service's requests to its engines; `groups` are the services of each group's engines."""
    parts = Counter(service for group in groups for service in group)
    taken: Counter[int] = Counter()
    found = []
    for group in groups:
        seats = []
        for service in group:
            seats.append(Seat(service, taken[service], parts[service]))
            taken[service] += 1
        found.append(tuple(seats))
    return found


def pack(plan: Plan, nodes: Nodes) -> list[int] | None:
    """Find a node (its number) for each group of a plan; None if they do not fit.

    First fit in order of size, which wastes nothing where each size divides the larger ones.
    """
    free = list(nodes.gpus)
    found = []
    for group in plan:
        node = next((node for node, left in enumerate(free) if left >= group.gpus), None)
        if node is None:
            return None
        free[node] -= group.gpus
        found.append(node)
    return found


def divide_gpus(total: int, per_node: int) -> tuple[int, ...]:
    """Divide GPUs among nodes: full ones, and what is left on a last one."""
    full, rest = divmod(total, per_node)
    return (per_node,) * full + ((rest,) if rest else ())


def sizes_up_to(most: int) -> list[int]:
    """List the powers of two up to `most`: how engines are split in practice."""
    return [1 << power for power in range(most.bit_length())]
