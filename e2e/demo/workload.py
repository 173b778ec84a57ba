"""Which requests the demo sends: first as many as the engines can take, then the same ones under each policy.

    capacity │ FCFS                     │ LARRY                    │ EconoServe ...
             ├─ 3 s ─┼──── 14 s ────┤ … ├─ 3 s ─┼──── 14 s ────┤ … ├─ 3 s ─┼ ...
              lead     measured       ▲   lead     measured
                              all are answered

`code` gets bursts: a burst alone is far more than its engine can take, so that requests queue, while the mean
stays below what was measured. `chat` gets far less than it can take, evenly: there nothing queues. Leads are
like that too, and a policy changes with their requests in flight. Each part begins when all requests of the
one before are answered, so that no policy serves what another left waiting.

Lengths are those of Azure's traces, shortened to what the tiny engines take.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from e2e.data import recorded
from e2e.demo.metrics import Sample
from e2e.demo.replay import Call
from headrace_engine.policies import registry
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.shape import Scale, take_every

POLICIES = registry.policy_names()  # in this order; the sample services start with the first
LEAD = 3.0  # seconds before each measured part
MEASURED = 14.0  # seconds of each measured part
PART = LEAD + MEASURED
BURSTS = 2  # in a measured part
BURST_SECONDS = 1.0  # in which its requests arrive

CAPACITY_SECONDS = 9.0  # that all engines are kept full
WARM_UP = 2.0  # of these, which are not counted
CLIENTS = 12  # for each engine, one request at a time: more than the eight that it runs together
SCALE = Scale(prompt_divisor=4, output_divisor=2, prompt_limit=1400, output_limit=300)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a service is sent: whose lengths, every n-th of them, and how much of what it can take."""

    trace: Callable[[], Sequence[Arrival]]
    every: int
    load: float  # mean requests per second in the measured part, as a share of measured capacity
    in_bursts: bool

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.load:.0%} of capacity, {'in bursts' if self.in_bursts else 'evenly'}"


TRAFFIC: Mapping[str, Traffic] = {
    "chat": Traffic(recorded.azure_conversation, every=3, load=0.3, in_bursts=False),
    "code": Traffic(recorded.azure_code, every=7, load=0.7, in_bursts=True),
}
LEAD_LOAD = 0.3


def lengths(service: str) -> Iterator[Arrival]:
    """Yield the service's requests in the trace's order, over and over; only their lengths matter."""
    traffic = TRAFFIC[service]
    return map(SCALE, itertools.cycle(take_every(traffic.trace(), traffic.every)))


def arrivals(service: str, capacity: float) -> list[Arrival]:
    """Make a part's requests for a service that can take `capacity` a second; the same every time."""
    traffic, chosen = TRAFFIC[service], lengths(service)
    times = _evenly(0.0, LEAD, LEAD_LOAD * capacity)
    if traffic.in_bursts:
        apart = MEASURED / BURSTS
        size = traffic.load * capacity * apart
        for number in range(BURSTS):
            times += _evenly(LEAD + number * apart, BURST_SECONDS, size / BURST_SECONDS)
    else:
        times += _evenly(LEAD, MEASURED, traffic.load * capacity)
    return [
        Arrival(at, each.prompt_tokens, each.output_tokens) for at, each in zip(times, chosen, strict=False)
    ]


def calls(capacity: Mapping[str, float], turn: int) -> list[Call]:
    """Make the requests of a part; each turn has other texts, which no prefix cache knows."""
    return [
        Call(
            at=each.at,
            service=service,
            prompt_tokens=each.prompt_tokens,
            output_tokens=each.output_tokens,
            text_seed=f"{service}-{turn}-{number}",
        )
        for service in TRAFFIC
        for number, each in enumerate(arrivals(service, capacity[service]))
    ]


def capacity(samples: Sequence[Sample], service: str) -> float:
    """Return the requests a second that a service finished while it was kept full; 0 of none."""
    ends = [each.sent + each.e2e for each in samples if each.service == service and not each.error]
    counted = sum(WARM_UP <= end < CAPACITY_SECONDS for end in ends)
    return counted / (CAPACITY_SECONDS - WARM_UP)


def measured(samples: Sequence[Sample], service: str) -> list[Sample]:
    """Choose a service's requests of the measured part, without those of the lead."""
    return [each for each in samples if each.service == service and each.sent >= LEAD]


def _evenly(start: float, seconds: float, rate: float) -> list[float]:
    """Spread requests evenly over a time, at least one."""
    count = max(1, round(rate * seconds))
    return [start + (number + 0.5) * seconds / count for number in range(count)]
