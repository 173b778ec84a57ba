"""One simulated run of one engine, as a value: `measure` turns many of them into figures.

Loads are fractions of what stock vLLM with default settings sustains on the same requests, engine and grid
point when all of them wait from the start; so a load means the same whatever policy serves it.
"""

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from e2e.bench.runs import workloads
from e2e.bench.runs.pool import ENGINE_SOURCES, Figures, run_all
from e2e.cluster.places import REPOSITORY
from headrace_engine.contracts import PerRequest, PolicyDocument, Slo, StepBudget
from headrace_engine.cost import catalog
from headrace_engine.cost.host import NO_HOST_TIME, HostTime, server_host_time
from headrace_engine.cost.model import CostModel, unloaded_seconds, vary_cost
from headrace_engine.policies import registry
from headrace_engine.policies.engine_view import NO_TARGETS
from headrace_engine.sim import metrics
from headrace_engine.sim.form import Form
from headrace_engine.sim.metrics import Targets
from headrace_engine.sim.oracle import Oracle
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival

STOCK = "stock"
DEFAULT_BUDGET = 8192
E2E_SCALES = (1.25, 1.5, 3.0)  # times alone, beside 2 and 5
SOURCES = (*ENGINE_SOURCES, REPOSITORY / "e2e/bench/runs/engine.py")


@dataclass(frozen=True, slots=True)
class Engine:
    """A model on a GPU, with the KV cache that fits beside it."""

    model: str
    gpu: str
    settings: EngineSettings
    fitted_to: str | None = None  # part of the name of the engine that the cost model is of
    tensor_parallel: int = 1


def _engine(model: str, gpu: str, kv: tuple[int, int], longest: int, fitted: str | None = None) -> Engine:
    """Make an engine; `kv`: blocks, and tokens in each. vLLM plans asynchronously; the older could not."""
    settings = EngineSettings(
        num_blocks=kv[0],
        block_size=kv[1],
        max_num_seqs=256,
        max_num_batched_tokens=DEFAULT_BUDGET,
        max_model_len=longest,
        async_scheduling=fitted is None,
        prefix_caching=True,  # vLLM's default; it finds nothing where a workload's prompts share nothing
    )
    return Engine(model, gpu, settings, fitted)


ENGINES = {
    "llama-3-8b-h100": _engine("llama-3-8b", "H100", (27_648, 16), 8192),  # 54 GiB of KV
    "llama-3-8b-h100-long": _engine("llama-3-8b", "H100", (27_648, 16), 131_072),  # Llama 3.1's context
    "llama-3-8b-h100-8gib": _engine(
        "llama-3-8b", "H100", (4_096, 16), 8192
    ),  # beside others on its GPU: KV binds
    "llama-3-8b-a100": _engine("llama-3-8b", "A100", (27_648, 16), 8192),  # 54 GiB
    "llama-2-13b-a100": _engine("llama-2-13b", "A100", (3_680, 16), 4096),  # 45 GiB
    "opt-13b-a100": _engine("opt-13b", "A100", (457, 32), 2048, "DistServe"),  # 12 GB: KV binds
    "llama-3-70b-h100": replace(  # 156 GiB of KV on four GPUs
        _engine("llama-3-70b", "H100", (31_900, 16), 8192), tensor_parallel=4
    ),
}
TARGETS = {
    "ttft": Targets(ttft=1.0),
    "tpot": Targets(tpot=0.05),
    "ttft_tpot": Targets(ttft=1.0, tpot=0.05),
    "e2e": Targets(e2e_scale=5.0),
    "e2e_2x": Targets(e2e_scale=2.0),
    "slow": Targets(ttft=10.0, tpot=0.1),
    **{f"e2e_{scale * 100:.0f}": Targets(e2e_scale=scale) for scale in E2E_SCALES},
}
OVERRIDES = PerRequest(ttft_ms=1, tpot_ms=1, e2e_ms=1)  # clients may ask for any target, and tell lengths
SLOS = {
    "": Slo(per_request=OVERRIDES),
    "ttft_tpot": Slo(ttft_ms=1000, tpot_ms=50, per_request=OVERRIDES),
    "slow": Slo(ttft_ms=10_000, tpot_ms=100, per_request=OVERRIDES),
    "e2e_2x": Slo(e2e_scale_percent=200, per_request=OVERRIDES),
    **{
        f"e2e_{s * 100:.0f}": Slo(e2e_scale_percent=round(s * 100), per_request=OVERRIDES) for s in E2E_SCALES
    },
}
"""What a policy document asks for its service; most have the name of the targets that it is measured by."""
DISTSERVE = "DistServe"
LINK = 300e9  # bytes/s from one GPU to the other that DistServe moves KV at: NVLink's of an A100, one way


@dataclass(frozen=True, slots=True)
class Case:
    """One run. `policy`: stock, a policy of the registry, or one of the simulator's baselines."""

    workload: str
    engine: str
    load: float  # of stock's sustained rate
    seed: int = 0
    policy: str = STOCK
    parameters: tuple[tuple[str, Any], ...] = ()
    methods: tuple[tuple[str, Any], ...] = ()  # of its policy that no service can choose
    step_budget: int = 0  # tokens per step with mode Fixed; 0 is mode Engine
    budget: int = DEFAULT_BUDGET  # vLLM's --max-num-batched-tokens
    watermark: float = 0.0  # share of KV blocks kept free at admission
    requests: int = 2000
    mixed: float = 1.0  # mixed_attention_factor
    overhead_ms: float = 0.0
    host: float = 1.0  # how often the host's own time counts; 0: not at all
    sync: bool = False  # plan each step when the last has ended, also where the engine would plan ahead
    budget_mode: str = ""  # of the policy document, where `step_budget` is 0
    slo: str = ""  # of `SLOS`
    accuracy: int | None = None  # percent of the requests whose length is told truly; None: nobody tells


@dataclass(frozen=True, slots=True)
class Overload:
    """All requests of a workload wait from the start; says what stock sustains."""

    workload: str
    engine: str
    seed: int
    requests: int
    mixed: float
    overhead_ms: float
    host: float
    sync: bool


@dataclass(frozen=True, slots=True)
class Timed:
    """A case with its arrival rate in requests/s."""

    case: Case
    rate: float


def measure(cases: Sequence[Case], title: str, workers: int = 2) -> dict[Case, Figures]:
    """Measure each case: what `metrics.summarise_run` names, `rate`, `steps`, `kv_use`, `decisions`."""
    rates = sustained_rates(cases, f"{title}: saturation", workers)
    timed = {case: Timed(case, case.load * rates[overload(case)]) for case in cases}
    found = run_all(list(timed.values()), run_case, title, sources=SOURCES, workers=workers)
    return {case: found[job] for case, job in timed.items()}


def sustained_rates(cases: Sequence[Case], title: str, workers: int = 2) -> dict[Overload, float]:
    """Measure requests/s that stock with default settings sustains, for each workload and engine."""
    jobs = list(dict.fromkeys(map(overload, cases)))
    found = run_all(jobs, run_overload, title, sources=SOURCES, workers=workers)
    return {job: float(figures["rate"]) for job, figures in found.items()}


def overload(case: Case) -> Overload:
    """Return what tells the meaning of the case's load."""
    return Overload(
        *(case.workload, case.engine, case.seed, case.requests),
        *(case.mixed, case.overhead_ms, case.host, case.sync),
    )


def run_overload(job: Overload) -> Figures:
    """Measure stock's sustained requests/s."""
    from headrace_engine.sim.run import simulate  # noqa: PLC0415  vLLM takes ten seconds to import

    settings = settings_of(job.engine, sync=job.sync)
    arrivals = workloads.make(job.workload, job.requests, 1.0, job.seed, settings.max_model_len)
    waiting = [replace(arrival, at=0.0) for arrival in arrivals]
    cost, host = cost_of(job.engine, job.mixed, job.overhead_ms), host_of(job.engine, job.host)
    run = simulate(waiting, settings, cost, host=host)
    return {"rate": metrics.sustained_rate(run.outcomes)}


def run_case(job: Timed) -> Figures:
    """Simulate one engine, and return the figures of the run."""
    from headrace_engine.sim.disaggregated import Link, simulate_disaggregated  # noqa: PLC0415  it is slow
    from headrace_engine.sim.run import simulate  # noqa: PLC0415  vLLM takes ten seconds to import

    case = job.case
    settings = replace(
        settings_of(case.engine, sync=case.sync),
        max_num_batched_tokens=case.budget,
        watermark=case.watermark,
    )
    arrivals = workloads.make(case.workload, case.requests, job.rate, case.seed, settings.max_model_len)
    cost = cost_of(case.engine, case.mixed, case.overhead_ms)
    if case.accuracy is not None:
        arrivals = Oracle(case.accuracy / 100, case.seed)(arrivals)
    if case.policy == DISTSERVE:
        link = Link(catalog.find_shape(ENGINES[case.engine].model).kv_bytes_per_token, LINK)
        run = simulate_disaggregated(arrivals, settings, cost, link)
    else:
        run = simulate(arrivals, settings, cost, policy_of(case), host=host_of(case.engine, case.host))

    def unloaded(arrival: Arrival) -> float:
        return unloaded_seconds(cost, arrival.prompt_tokens, arrival.output_tokens, DEFAULT_BUDGET)

    return {
        **metrics.summarise_run(run.outcomes, TARGETS, unloaded),
        **own_attainment(run.outcomes),
        "rate": job.rate,
        "steps": run.steps,
        "kv_use": run.kv_use,
        "decisions": run.decisions,
    }


def own_attainment(outcomes: Sequence[Outcome]) -> Figures:
    """Return `met_own`, the share of requests that met their own targets, and `met_own_{client}` of each.

    `met_own_worst` is the share of the client with the lowest, `met_own_iterations` that of tokens in time,
    which is what AccelGen's paper counts. Nothing if no request had targets.
    """
    middle = [each for each in metrics.steady_outcomes(outcomes) if each.arrival.targets != NO_TARGETS]
    groups: dict[str, list[bool]] = {}
    for each in middle:
        wanted = each.arrival.targets
        met = metrics.met_targets(each, Targets(ttft=wanted.ttft, tpot=wanted.tpot, e2e=wanted.e2e))
        for name in ("met_own", f"met_own_{each.arrival.client}"):
            groups.setdefault(name, []).append(met)
    shares = {name: sum(each) / len(each) for name, each in groups.items()}
    if not shares:
        return {}
    in_time = sum(map(metrics.tokens_in_time, middle)) / sum(each.arrival.output_tokens for each in middle)
    return {**shares, "met_own_worst": min(shares.values()), "met_own_iterations": in_time}


def settings_of(engine: str, *, sync: bool) -> EngineSettings:
    """Return the engine's settings, made to plan each step when the last has ended if `sync`."""
    settings = ENGINES[engine].settings
    return replace(settings, async_scheduling=False) if sync else settings


def policy_of(case: Case) -> Any:
    """Make what `simulate` takes: a document, a form, a function that composes a policy, None for stock."""
    if case.policy == STOCK:
        return None
    parameters = dict(case.parameters)
    if case.policy in registry.policy_names():
        budget = StepBudget(case.budget_mode) if case.budget_mode else StepBudget()  # type: ignore[arg-type]
        if case.step_budget:
            budget = StepBudget("Fixed", case.step_budget)
        document = PolicyDocument(case.policy, parameters, budget, SLOS[case.slo])
        return Form(document, dict(case.methods)) if case.methods else document
    from headrace_engine.sim.baselines import BASELINES  # noqa: PLC0415  it imports vLLM

    return BASELINES[case.policy](step_budget=case.step_budget, **parameters)


@functools.cache
def cost_of(engine: str, mixed: float = 1.0, overhead_ms: float = 0.0) -> CostModel:
    """Return the engine's cost model at a point of the grid."""
    each = ENGINES[engine]
    cost = catalog.find_cost_model(each.model, each.gpu, each.tensor_parallel, each.fitted_to)
    return vary_cost(cost, mixed, overhead_ms / 1000)


@functools.cache
def host_of(engine: str, factor: float = 1.0) -> HostTime:
    """Return what the CPU of the engine's host takes, `factor` times as much as was calibrated.

    Nothing where the cost model was fitted to whole steps of a server: they have the host's time in them.
    """
    if ENGINES[engine].fitted_to is not None:
        return NO_HOST_TIME
    one = server_host_time(ENGINES[engine].tensor_parallel)
    return HostTime(
        **{key: factor * seconds for key, seconds in asdict(one).items()} | {"exposed": one.exposed}
    )
