"""Which requests the demo sends: the same stretch of the trace twice, around a change of policy.

    warm-up   measured under FCFS   the change         measured under LARRY
    ├─ 5 s ─┼─────── 40 s ───────┼─ 5 s, in flight ─┼─────── 40 s ───────┤

The stretches before both measured parts are the same requests too, so that both start from a like load. What
is in flight at the change is counted as sent under the policy before it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from e2e.data import recorded
from e2e.demo.metrics import Sample, Summary, Targets, summarise
from e2e.demo.replay import Call
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.shape import Scale, thin, window

LEAD = 5.0  # seconds before each measured part
MEASURED = 40.0  # seconds of each measured part
SWITCH_AT = LEAD + MEASURED  # when the policy changes, on the replay's clock

TRACE_START = 1654.802052  # seconds into the hour; a busy stretch with bursts
SCALE = Scale(prompt_divisor=4, output_divisor=2, prompt_limit=1400, output_limit=300)


@dataclass(frozen=True, slots=True)
class Part:
    """A service's part of the trace: every n-th request from `offset` on."""

    every: int
    offset: int


PARTS: Mapping[str, Part] = {"chat": Part(every=2, offset=0), "code": Part(every=5, offset=1)}


def calls(parts: Mapping[str, Part] = PARTS) -> list[Call]:
    """All requests of the replay."""
    trace = recorded.azure_conversation()
    stretch = window(trace, TRACE_START, LEAD + MEASURED)
    return [
        Call(
            at=half * SWITCH_AT + request.at,
            service=service,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            text_seed=f"{service}-{half}-{number}",
        )
        for half in (0, 1)
        for service, part in parts.items()
        for number, request in enumerate(_thinned(stretch, part))
    ]


def phase(at: float) -> str:
    """What the replay is doing `at` seconds after its start."""
    half, since = divmod(at, SWITCH_AT)
    if half > 1:
        return "last answers"
    if since < LEAD:
        return "warm-up" if half == 0 else "changing the policy"
    return "under FCFS" if half == 0 else "under LARRY"


def halves(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Requests sent in the measured parts, before and after the change."""
    before = [sample for sample in samples if LEAD <= sample.sent < SWITCH_AT]
    after = [sample for sample in samples if sample.sent >= SWITCH_AT + LEAD]
    return before, after


def rows(samples: Sequence[Sample], targets: Mapping[str, Targets]) -> list[tuple[str, str, Summary]]:
    """The comparison: service, policy, what was measured."""
    before, after = halves(samples)
    return [
        (service, policy, summarise((s for s in part if s.service == service), wanted))
        for service, wanted in targets.items()
        for policy, part in (("FCFS", before), ("LARRY", after))
    ]


def _thinned(stretch: Sequence[Arrival], part: Part) -> Iterator[Arrival]:
    return map(SCALE, thin(stretch, part.every, part.offset))
