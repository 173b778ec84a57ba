"""Which requests the demo sends: the same stretch of the trace once for each policy, one right after another.

    FCFS                     LARRY                     EconoServe
    ├─ 5 s ─┼──── 15 s ────┼─ 5 s ─┼──── 15 s ────┼─ 5 s ─┼ ...
     lead     measured       lead     measured       lead

The leads are the same requests too. A policy changes at the start of a lead, with requests in flight; those
count for the policy that they were sent under. What one policy leaves waiting, the next one has to serve, so
rows are no fair comparison of policies: `e2e.bench` makes those.

Engines on a slow or busy machine are sent fewer of the requests, by what they do with a few beforehand: else
their queues would grow until clients give up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from e2e.data import recorded
from e2e.demo.metrics import Sample, Summary, Targets, summarise
from e2e.demo.replay import Call
from headrace_engine.policies import registry
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.shape import Scale, cut_window, take_every

POLICIES = registry.policy_names()  # in this order; the sample services start with the first
LEAD = 5.0  # seconds before each measured part
MEASURED = 15.0  # seconds of each measured part
PART = LEAD + MEASURED  # a policy's time, on the replay's clock

TRACE_START = 1654.802052  # seconds into the hour; a busy stretch with bursts
PROBES = 8  # requests sent to each service at once, to see how fast it is
PROBE_TOKENS = 32  # output of each
ENOUGH = 200.0  # tokens a second, of both services, with which all of the trace is served in time
LEAST_SHARE = 0.1
SCALE = Scale(prompt_divisor=4, output_divisor=2, prompt_limit=1400, output_limit=300)


@dataclass(frozen=True, slots=True)
class Part:
    """A service's part of the trace: every n-th request from `offset` on."""

    every: int
    offset: int


PARTS: Mapping[str, Part] = {"chat": Part(every=3, offset=0), "code": Part(every=7, offset=1)}


def probes() -> list[Call]:
    """Make a few requests to each service, all at once."""
    return [
        Call(
            at=0.0, service=service, prompt_tokens=64, output_tokens=PROBE_TOKENS, text_seed=f"{service}-{n}"
        )
        for service in PARTS
        for n in range(PROBES)
    ]


def share(samples: Sequence[Sample]) -> float:
    """Return the share of the trace's requests that engines can be sent which did the probes so fast."""
    seconds = max(sample.e2e for sample in samples)
    tokens = sum(sample.output_tokens for sample in samples)
    return min(1.0, max(LEAST_SHARE, tokens / seconds / ENOUGH))


def calls(share: float = 1.0, parts: Mapping[str, Part] = PARTS) -> list[Call]:
    """Make the requests of the replay: this share of the recorded ones, evenly thinned."""
    trace = recorded.azure_conversation()
    stretch = cut_window(trace, TRACE_START, PART)
    return [
        Call(
            at=turn * PART + request.at,
            service=service,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            text_seed=f"{service}-{turn}-{number}",
        )
        for turn in range(len(POLICIES))
        for service, part in parts.items()
        for number, request in enumerate(_thinned(stretch, part))
        if int((number + 1) * share) > int(number * share)
    ]


def phase(at: float) -> str:
    """Say what the replay is doing `at` seconds after its start."""
    turn, since = divmod(at, PART)
    if turn >= len(POLICIES):
        return "last answers"
    policy = POLICIES[int(turn)]
    if since < LEAD:
        return f"changing to {policy}" if turn else "warm-up"
    return f"under {policy}"


def rows(samples: Sequence[Sample], targets: Mapping[str, Targets]) -> list[tuple[str, str, Summary]]:
    """Make the rows: service, policy, what was measured of the requests sent in its measured part."""
    return [
        (service, policy, summarise((s for s in _measured(samples, turn) if s.service == service), wanted))
        for service, wanted in targets.items()
        for turn, policy in enumerate(POLICIES)
    ]


def _measured(samples: Sequence[Sample], turn: int) -> list[Sample]:
    return [sample for sample in samples if turn * PART + LEAD <= sample.sent < (turn + 1) * PART]


def _thinned(stretch: Sequence[Arrival], part: Part) -> Iterator[Arrival]:
    return map(SCALE, take_every(stretch, part.every, part.offset))
