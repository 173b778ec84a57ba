"""The walk through the policies: capacity, then for each one prediction, patch, requests, what came of it."""

import asyncio
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from e2e.demo import services, table, workload
from e2e.demo.capacity import measure_capacity
from e2e.demo.kube import Kube, KubeError, replicas
from e2e.demo.metrics import Sample, Summary, Targets, summarise
from e2e.demo.predictor import Predictor, learn
from e2e.demo.replay import Progress, replay
from e2e.demo.steps import StageError, Steps
from headrace_operator.errors import HeadraceError

SWITCH_AT = 1.0  # seconds into a part's lead, with requests in flight
FIRST = workload.POLICIES[0]  # what the others are compared with

Changes = dict[str, dict[str, services.Change]]
"""By policy and service."""


@dataclass(frozen=True, slots=True)
class Walker:
    """What a walk needs."""

    url: str  # of the gateway
    kube: Kube
    targets: Mapping[str, Targets]  # of each service
    predictor: Predictor
    steps: Steps


@dataclass(frozen=True, slots=True)
class Part:
    """One policy, by service: what was predicted for it and, alike, for the first; what was measured."""

    policy: str
    predicted: Mapping[str, tuple[Summary, Summary]]  # empty: it could not be
    measured: Mapping[str, Summary]
    ttft: Mapping[str, Sequence[float]]  # of each measured request, in their order; NaN: it failed


@dataclass(slots=True)
class Walk:
    """Everything that came of it."""

    samples: list[Sample] = field(default_factory=list)
    changes: Changes = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)


async def take_walk(walker: Walker) -> Walk:
    """Measure what the services can take, then send the same requests under each policy.

    Raises StageError, and what kubectl does.
    """
    capacity = await _capacity(walker)
    walk, progress, doing = Walk(), Progress(), ""
    shown = asyncio.create_task(table.follow(progress, walker.targets, lambda: doing, walker.steps))
    try:
        for turn, policy in enumerate(workload.POLICIES):
            doing = f"predicting {policy}"
            predicted = await asyncio.to_thread(_predict, walker, capacity, policy)
            doing = f"under {policy}"
            load = asyncio.create_task(replay(walker.url, workload.calls(capacity, turn), progress))
            if turn:
                await asyncio.sleep(SWITCH_AT)
                walk.changes[policy] = await _switch(walker, policy)
            samples = await load
            walk.samples += samples
            walk.parts.append(_part(policy, predicted, samples, walker.targets))
            measured = _in_words(walk.parts[-1].measured, walk.parts[0].measured)
            walker.steps.say(f"  measured under {policy}: {measured}")
    finally:
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)
    return walk


def make_rows(parts: Sequence[Part]) -> list[table.Row]:
    """Make the table's rows, by service, then in the order of the policies."""
    rows = []
    for service, first in parts[0].measured.items():
        for part in parts:
            now, (new, old) = part.measured[service], part.predicted.get(service, (None, None))
            predicted = table.ratio(new, old) if new and old else math.nan
            sooner = is_sooner(part.ttft[service], parts[0].ttft[service])
            rows.append(table.Row(service, part.policy, now, table.ratio(now, first), sooner, new, predicted))
    return rows


def is_sooner(new: Sequence[float], first: Sequence[float]) -> bool:
    """Tell whether the same requests were answered sooner by more than chance: two standard errors.

    Requests are paired: what is compared is how much sooner each was answered.
    """
    pairs = zip(new, first, strict=True)
    gains = [before - now for now, before in pairs if not math.isnan(now + before)]
    if len(gains) < 2:
        return False
    return statistics.fmean(gains) > 2 * statistics.stdev(gains) / math.sqrt(len(gains))


async def _capacity(walker: Walker) -> dict[str, float]:
    """Measure each service's requests a second, all services at once, since they share the machine."""
    kube, said = walker.kube, []
    engines = {name: replicas(kube.get(services.NAMESPACE, "llmservice", name)) for name in walker.targets}
    walker.steps.say(
        f"  all engines are kept full for {workload.CAPACITY_SECONDS:.0f} s, to see what they can take"
    )
    samples = await measure_capacity(walker.url, engines)
    if failed := next((sample.error for sample in samples if sample.error), ""):
        raise StageError(f"a request to see how much the engines can take failed: {failed}")
    found = {name: workload.capacity(samples, name) for name in walker.targets}
    for name, capacity in found.items():
        said.append(f"{name} {capacity:.1f} requests a second, and gets {workload.TRAFFIC[name].name}")
    walker.steps.say(f"  measured capacity: {'; '.join(said)}")
    return found


async def _switch(walker: Walker, policy: str) -> dict[str, services.Change]:
    """Patch all services at once, and say after how long every engine had the policy."""
    names = list(walker.targets)
    took = await asyncio.gather(
        *(asyncio.to_thread(services.schedule, walker.kube, name, {"policy": policy}) for name in names)
    )
    each = "; ".join(
        f"{name} {change.applied:.2f} s ({change.total:.2f} s with kubectl's own start)"
        for name, change in zip(names, took, strict=True)
    )
    walker.steps.say(f"  kubectl patch to {policy}, on every engine after: {each}")
    return dict(zip(names, took, strict=True))


def _predict(
    walker: Walker, capacity: Mapping[str, float], policy: str
) -> dict[str, tuple[Summary, Summary]]:
    """Predict a policy and, with the same step times, the first one; says it, or why there is none."""
    found = {}
    try:
        for name, wanted in walker.targets.items():
            arrivals = workload.arrivals(name, capacity[name])
            new, first = walker.predictor.predict(learn(walker.kube, name), arrivals, [policy, FIRST])
            found[name] = (_summary(new, name, wanted), _summary(first, name, wanted))
    except (KubeError, HeadraceError, TimeoutError, LookupError) as error:
        walker.steps.say(f"  no prediction for {policy}: {type(error).__name__}: {error}")
        return {}
    before = {name: pair[1] for name, pair in found.items()}
    words = _in_words({name: pair[0] for name, pair in found.items()}, before, alike=policy == FIRST)
    walker.steps.say(f"  predicted for {policy}: {words}")
    return found


def _part(
    policy: str,
    predicted: Mapping[str, tuple[Summary, Summary]],
    samples: Sequence[Sample],
    targets: Mapping[str, Targets],
) -> Part:
    measured = {name: _summary(samples, name, wanted) for name, wanted in targets.items()}
    ttft = {name: [each.ttft for each in workload.measured(samples, name)] for name in targets}
    return Part(policy, predicted, measured, ttft)


def _summary(samples: Sequence[Sample], name: str, wanted: Targets) -> Summary:
    return summarise(workload.measured(samples, name), wanted)


def _in_words(found: Mapping[str, Summary], first: Mapping[str, Summary], *, alike: bool = False) -> str:
    """Write each service's mean TTFT, how that compares with the first policy, and targets met."""
    return "; ".join(
        f"{name} mean TTFT {table.seconds(each.ttft.mean)}"
        + ("" if alike or each is first[name] else f" (x {table.ratio(each, first[name]):.2f} of {FIRST}'s)")
        + f", SLO met {table.percent(each.attainment)}"
        for name, each in found.items()
    )
