"""What planning adds to vLLM's `schedule()`: `python -m e2e.bench.plan_cost`.

For each policy two engines that differ only in their scheduler take turns in one process: vLLM's own, and
ours, with its files to a sidecar in a memory folder. A turn is some steps, so that the processor's caches
hold what one engine uses, as where it has a process of its own. Each has 256 requests running, a queue of the
stated length. Requests finish, start and arrive between the steps, so that each step changes the queue; the
model's tokens are made up, no step is computed.

Lengths come from the Azure 2023 conversation trace. Prompts are a quarter as long as recorded, and each
goes with the output of another request: so all engines keep 256 places filled and start equally many
requests, whatever their order. vLLM's own time grows with both and would hide ours. Requests arrive in
another order than they were made in. So those that run lie as far apart in memory under stock as under any
policy; how much that alone adds to stock, where they would lie side by side otherwise, is
`stock_scattered_added`.

What a policy adds (`added`) is the median of the differences between the median step of its turn and of
stock's beside it; that includes what vLLM does otherwise because other requests run. `planning` is the time
inside our own code during `schedule()` alone. `beside` is what is added while the device computes the step:
the sidecar is told then. `idle` is what a step adds in all, these three together, if there is nothing to
decide: 256 requests generate under FCFS, nobody waits, and there are no targets.
"""

import gc
import itertools
import random
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.data import recorded
from headrace_engine.adapter.control_link import ControlLink, FileLink
from headrace_engine.adapter.policy_scheduler import PolicyScheduler
from headrace_engine.contracts import PolicyDocument, Slo
from headrace_engine.control.paths import policy_path
from headrace_engine.control.policy_file import write_policy
from headrace_engine.policies import registry
from headrace_engine.sim.clock import VirtualClock
from headrace_engine.sim.loop import VirtualEngine
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.vllm_objects import make_request, make_scheduler
from headrace_engine.sim.workloads.shape import Scale

# Llama-3-8B on one H100 with 54 GiB of KV.
SETTINGS = EngineSettings(num_blocks=27_648, block_size=16, max_num_seqs=256, max_num_batched_tokens=2048)
SHORTER = Scale(prompt_divisor=4, output_divisor=1, prompt_limit=4000, output_limit=2000)
ARRIVALS_PER_SECOND = 20  # how far apart the requests of the first queue arrived
MADE_AHEAD = 1024  # requests of which one at random is the next to arrive
WARM_UP_STEPS = 150  # after which all places are filled
TURN = 25  # steps
SLO = Slo(ttft_ms=1000, tpot_ms=100, e2e_scale_percent=500)  # so that deadlines have to be looked at
IDLE_PROMPT, IDLE_OUTPUT = 100, 8000  # tokens of requests that generate for longer than is measured
POLICIES = {name.lower(): PolicyDocument(name, slo=SLO) for name in registry.policy_names()}


Requests = Callable[[VirtualClock], Iterator[Any]]
"""The requests that an engine gets, in order of arrival."""


@dataclass(slots=True)
class Contestant:
    """One engine with a queue of constant length; times in nanoseconds."""

    engine: VirtualEngine
    requests: Iterator[Any]
    queue_length: int
    schedule_times: list[int] = field(default_factory=list)
    planning_times: list[int] = field(default_factory=list)
    update_times: list[int] = field(default_factory=list)
    beside_times: list[int] = field(default_factory=list)

    def step(self) -> None:
        """Top the queue up, then time one step."""
        scheduler = self.engine.scheduler
        while len(scheduler.waiting) < self.queue_length:
            scheduler.add_request(next(self.requests))
        self.engine.turn()


def main() -> None:
    """Measure and write the figures."""
    parser = describe(__doc__)
    parser.add_argument("--steps", type=int, default=500, help="timed per engine (default %(default)s)")
    steps = parser.parse_args().steps
    figures: dict[str, float] = {}
    for measured in (measure_idle(steps), measure(1000, steps), measure(5000, steps)):
        for key, value in measured.items():
            print(f"  {key:30}{value:8.1f}", flush=True)
        figures |= measured
    print(results.write("plan_cost", f"python -m e2e.bench.plan_cost --steps {steps}", figures))


def measure(waiting: int, steps: int) -> dict[str, float]:
    """Measure median microseconds at this queue length: stock, over all pairs, and what each policy adds."""
    print(f"{waiting} waiting, {SETTINGS.max_num_seqs} running, {steps} steps", flush=True)
    figures: dict[str, float] = {}
    stock_schedule: list[int] = []
    stock_update: list[int] = []
    scattered, in_order = (contestant(waiting, lambda _: None, each) for each in (arrivals, made))
    take_turns([scattered, in_order], WARM_UP_STEPS + steps)
    for kind, attribute in (("", "schedule_times"), ("_update", "update_times")):
        figures[f"stock_scattered{kind}_added_us_{waiting}"] = median_us(
            added(getattr(scattered, attribute), getattr(in_order, attribute))
        )
    for name, document in POLICIES.items():
        stock, ours = pair(waiting, WARM_UP_STEPS + steps, document)
        stock_schedule += stock.schedule_times[WARM_UP_STEPS:]
        stock_update += stock.update_times[WARM_UP_STEPS:]
        figures[f"{name}_added_us_{waiting}"] = median_us(added(ours.schedule_times, stock.schedule_times))
        figures[f"{name}_planning_us_{waiting}"] = median_us(ours.planning_times[WARM_UP_STEPS:])
        figures[f"{name}_update_added_us_{waiting}"] = median_us(added(ours.update_times, stock.update_times))
        figures[f"{name}_beside_added_us_{waiting}"] = median_us(added(ours.beside_times, stock.beside_times))
    return {
        f"stock_us_{waiting}": median_us(stock_schedule),
        f"stock_update_us_{waiting}": median_us(stock_update),
    } | figures


def measure_idle(steps: int) -> dict[str, float]:
    """Measure median microseconds that a step adds in which there is nothing to decide."""
    print(f"nobody waiting, {SETTINGS.max_num_seqs} running, no targets, {steps} steps", flush=True)
    stock, ours = pair(0, WARM_UP_STEPS + steps, PolicyDocument("FCFS"), steady)
    in_all = [
        list(map(sum, zip(each.schedule_times, each.update_times, each.beside_times, strict=True)))
        for each in (ours, stock)
    ]
    return {
        "idle_added_us": median_us(added(*in_all)),
        "idle_schedule_added_us": median_us(added(ours.schedule_times, stock.schedule_times)),
        "idle_update_added_us": median_us(added(ours.update_times, stock.update_times)),
    }


def pair(
    waiting: int, steps: int, document: PolicyDocument, requests: Requests | None = None
) -> tuple[Contestant, Contestant]:
    """Run stock and the policy for that many steps, on the requests of the trace unless others are given."""
    requests = requests or arrivals
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        contestants = (
            contestant(waiting, lambda _: None, requests),
            contestant(waiting, partial(file_link, Path(folder), document), requests),
        )
        take_turns(list(contestants), steps)
        for each in contestants:
            each.engine.scheduler.shutdown()
    return contestants


def take_turns(contestants: list[Contestant], steps: int) -> None:
    """Step all engines in an order that rotates, with the garbage collector as vLLM's engine sets it."""
    gc.collect()
    gc.freeze()
    order = deque(contestants)
    for _ in range(steps // TURN):
        order.rotate(1)
        for each in order:
            for _ in range(TURN):
                each.step()
    gc.unfreeze()


def contestant(
    waiting: int, link: Callable[[VirtualClock], ControlLink | None], requests: Requests
) -> Contestant:
    """Make an engine whose first queue, at least as many as can run, arrived over the last seconds."""
    clock = VirtualClock()
    scheduler = make_scheduler(SETTINGS, link(clock))
    engine = VirtualEngine(scheduler, clock)
    each = Contestant(engine, requests(clock), waiting)
    if isinstance(scheduler, PolicyScheduler):
        watch_planning(scheduler, each.planning_times)
    scheduler.schedule = timed(scheduler.schedule, each.schedule_times)
    scheduler.update_from_output = timed(scheduler.update_from_output, each.update_times)
    scheduler.get_grammar_bitmask = timed(scheduler.get_grammar_bitmask, each.beside_times)
    first = max(waiting, SETTINGS.max_num_seqs)
    early = clock.now - first / ARRIVALS_PER_SECOND
    for place in range(first):
        request = next(each.requests)
        request.arrival_time = early + place / ARRIVALS_PER_SECOND
        scheduler.add_request(request)
    return each


def arrivals(clock: VirtualClock) -> Iterator[Any]:
    """Yield the requests of the trace, arriving now, in another order than they are made in."""
    return scatter(made(clock), clock)


def scatter(requests: Iterator[Any], clock: VirtualClock) -> Iterator[Any]:
    """Yield requests, arriving now, in another order than they are made in: so they lie in memory."""
    chance = random.Random(1)
    ready = list(itertools.islice(requests, MADE_AHEAD))
    while True:
        place = chance.randrange(MADE_AHEAD)
        request, ready[place] = ready[place], next(requests)
        request.arrival_time = clock.now
        yield request


def made(clock: VirtualClock) -> Iterator[Any]:
    """Yield the requests of the trace, over and over, arriving now."""
    trace = [SHORTER(request) for request in recorded.azure_conversation()]
    others = trace[len(trace) // 2 :] + trace[: len(trace) // 2]
    for number, (request, other) in enumerate(itertools.cycle(zip(trace, others, strict=True))):
        yield make_request(str(number), request.prompt_tokens, other.output_tokens, clock.now)


def steady(clock: VirtualClock) -> Iterator[Any]:
    """Yield requests that all go on generating."""
    made = (make_request(str(number), IDLE_PROMPT, IDLE_OUTPUT, clock.now) for number in itertools.count())
    return scatter(made, clock)


def file_link(root: Path, document: PolicyDocument, clock: VirtualClock) -> FileLink:
    """Return the engine's real link, in a memory folder, but on the engine's virtual clock."""
    for folder in ("control", "stats"):
        (root / folder).mkdir(parents=True)
    write_policy(policy_path(root), document.sealed())
    link = FileLink(root, rank=0)
    link.clock = clock
    return link


def watch_planning(scheduler: Any, times: list[int]) -> None:
    """Keep, for each step, the time in our hooks of `schedule()`: planning, and ranking on demand."""
    parts: list[int] = []
    step, guard = scheduler._step, scheduler._guard  # noqa: SLF001
    admitted, schedule = guard.admitted, scheduler.schedule

    def ranked() -> Iterator[Any] | None:
        planned = admitted()
        return None if planned is None else iter(timed(partial(next, planned, None), parts), None)

    def schedule_and_sum(*arguments: Any) -> Any:
        output = schedule(*arguments)
        times.append(sum(parts))
        parts.clear()
        return output

    step.begin, step.end = timed(step.begin, parts), timed(step.end, parts)
    guard.admitted, scheduler.schedule = ranked, schedule_and_sum


def timed(function: Callable[..., Any], times: list[int]) -> Callable[..., Any]:
    """Wrap `function` so that each call's duration is noted."""

    def call(*arguments: Any) -> Any:
        started = time.perf_counter_ns()
        result = function(*arguments)
        times.append(time.perf_counter_ns() - started)
        return result

    return call


def added(ours: list[int], stock: list[int]) -> list[float]:
    """Return how much longer than stock's turn beside it each turn's median step took, after the warm-up."""
    turns = [slice(first, first + TURN) for first in range(WARM_UP_STEPS, len(ours), TURN)]
    return [statistics.median(ours[turn]) - statistics.median(stock[turn]) for turn in turns]


def median_us(times: Sequence[float]) -> float:
    """Return median of nanoseconds, in microseconds."""
    return round(statistics.median(times) / 1000, 1)


if __name__ == "__main__":
    main()
