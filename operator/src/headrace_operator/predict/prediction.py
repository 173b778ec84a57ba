"""A case served by simulated engines, and the figures that a load generator would print of it."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from headrace_engine.cost import catalog
from headrace_engine.cost.host import HostTime, server_host_time
from headrace_engine.sim.engine import SimulatedEngine
from headrace_engine.sim.garbage_collector import no_collector
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.run import serve
from headrace_engine.sim.settings import EngineSettings
from headrace_operator.predict import loads
from headrace_operator.predict.cases import Case
from headrace_operator.simulate.simulated_engine import BLOCK_SIZE, default_steps, kv_room

STAGE = 60.0  # seconds of arrivals where the case does not say
FEWEST = 200  # requests at least, however slowly they arrive
RAMP = 10.0  # seconds over which a closed loop starts; all at once would go in step for ever
SETTLE = 20.0  # seconds of a closed loop before it is measured
UTILIZATION = 0.9  # vLLM's --gpu-memory-utilization up to 0.24
ASYNCHRONOUS_FROM = (0, 14)  # vLLM schedules asynchronously where nothing is said
LARGE_STEPS_FROM = (0, 9)  # vLLM runs more requests at once on large GPUs
SEQS_BEFORE = 256


@dataclass(frozen=True, slots=True)
class Prediction:
    """Simulated figures of a case: milliseconds, and requests per second."""

    ttft_mean_ms: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_mean_ms: float
    e2e_mean_ms: float
    e2e_p99_ms: float
    completed_rps: float


def predict(case: Case, host: HostTime | None = None) -> Prediction:
    """Serve the case; raises ValueError if the engine could never serve such requests.

    `host` is what the CPU takes, if not what it takes in a GPU server.
    """
    settings = settings_of(case)
    host = host or server_host_time(case.cost.profile.tensor_parallel)
    engines = [SimulatedEngine(settings, case.cost, host=host) for _ in range(case.replicas)]
    with no_collector():
        if case.process == "closed":
            return _closed(case, engines[0])
        return _open(case, engines)


def settings_of(case: Case) -> EngineSettings:
    """Return the engine's settings: the case's, and vLLM's defaults of its OpenAI server on that GPU."""
    profile = case.cost.profile
    budget, seqs = default_steps(profile.gpu)
    if case.vllm < LARGE_STEPS_FROM:
        seqs = min(seqs, SEQS_BEFORE)
    budget, seqs = case.max_num_batched_tokens or budget, case.max_num_seqs or seqs
    longest = int(case.prompt_tokens) + int(case.output_tokens) + 2
    return EngineSettings(
        num_blocks=case.kv_blocks or _kv_blocks(case),
        block_size=BLOCK_SIZE,
        max_num_seqs=min(seqs, budget),
        max_num_batched_tokens=budget,
        async_scheduling=case.vllm >= ASYNCHRONOUS_FROM,
        max_model_len=longest,
        prefix_caching=case.prefix_caching,
    )


def _kv_blocks(case: Case) -> int:
    profile = case.cost.profile
    per_token = catalog.find_shape(profile.model).kv_bytes_per_token
    return max(1, kv_room(profile, UTILIZATION) // per_token // BLOCK_SIZE)


def _open(case: Case, engines: Sequence[SimulatedEngine]) -> Prediction:
    """Measure the requests of a stage, without the first round of prompts that come in turn."""
    skipped = case.cycle
    if case.process == "at once":
        arrivals = list(islice(loads.requests(case), case.concurrency))
    else:
        wanted = skipped + max(FEWEST, round((case.seconds or STAGE) * case.rate))
        arrivals, at = [], 0.0
        for request, gap in zip(islice(loads.requests(case), wanted), loads.gaps(case, 0), strict=False):
            arrivals.append(replace(request, at=at))
            at += gap
    chance = random.Random(0)  # noqa: S311  (no secret)
    chosen = [chance.randrange(len(engines)) for _ in arrivals]
    for number, engine in enumerate(engines):
        serve(engine, [arrival for arrival, to in zip(arrivals, chosen, strict=True) if to == number])
    served = [iter(engine.outcomes) for engine in engines]
    measured = [next(served[number]) for number in chosen][skipped:]
    seconds = max(each.finished_at or 0.0 for each in measured) - measured[0].arrival.at
    return _figures(measured, len(measured) / seconds)


def _closed(case: Case, engine: SimulatedEngine) -> Prediction:
    """Keep `concurrency` requests in flight; measure those that end in the stage, after it has settled.

    It has settled when `SETTLE` is over and so many requests have ended; the stage lasts until as many more
    have.
    """
    upcoming = loads.requests(case)
    due = [RAMP * number / case.concurrency for number in range(case.concurrency)]  # a heap: sorted
    settling, since = case.concurrency, SETTLE
    measured: list[Outcome] = []
    while True:
        if due and due[0] <= engine.next_event_at:
            engine.add(replace(next(upcoming), at=due[0]), heapq.heappop(due))
            continue
        for outcome in engine.advance():
            finished_at = outcome.finished_at or 0.0
            heapq.heappush(due, finished_at)
            if settling > 0 or finished_at <= since:
                settling, since = settling - 1, max(finished_at, SETTLE)
                continue
            measured.append(outcome)
            seconds = finished_at - since
            if seconds >= (case.seconds or STAGE) and len(measured) >= case.concurrency:
                return _figures(measured, len(measured) / seconds)


def _figures(outcomes: Sequence[Outcome], completed: float) -> Prediction:
    ttft = np.array([outcome.ttft for outcome in outcomes], dtype=float) * 1000
    e2e = np.array([outcome.e2e for outcome in outcomes], dtype=float) * 1000
    gaps = float(np.mean([outcome.arrival.output_tokens for outcome in outcomes])) - 1
    return Prediction(
        float(ttft.mean()),
        float(np.percentile(ttft, 50)),
        float(np.percentile(ttft, 99)),
        float(e2e.mean() - ttft.mean()) / max(gaps, 1.0),
        float(e2e.mean()),
        float(np.percentile(e2e, 99)),
        completed,
    )
