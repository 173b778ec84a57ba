"""What the simulator says of a run before it is made, from what was fitted to the engine itself.

Stock servers have no plugin that times their steps, so theirs are taken to last as long as those of the
plugin's server under FCFS: same model, same device, same work.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from e2e.bench.live.calibration import Fitted
from e2e.bench.live.cases import DEFAULT, TUNED, Contestant, Device, Workload
from e2e.bench.live.figures import Served, of_run
from headrace_engine.contracts import PolicyDocument
from headrace_engine.cost.model import unloaded_seconds
from headrace_engine.sim import metrics
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival

SEARCHED_SEEDS = (1000, 1001, 1002, 1003)  # of searches; no run has them
SEARCHED_LOAD = 0.9
AS_GOOD = 1.03  # times the lowest mean E2E: settings up to here differ less than two searches would


def predict(
    device: Device,
    fitted: Fitted,
    workload: Workload,
    contestant: Contestant,
    arrivals: Sequence[Arrival],
) -> dict[str, float]:
    """Simulate one run; its figures are named like the measured ones."""
    served = []
    settings = settings_for(device, workload, contestant)
    for outcome in _serve(fitted, settings, contestant.document(workload), arrivals):
        ttft, tpot, e2e = outcome.ttft, outcome.tpot, outcome.e2e
        assert ttft is not None
        assert tpot is not None
        assert e2e is not None
        served.append(Served(outcome.arrival.at, ttft, tpot, e2e, alone(device, fitted, outcome.arrival)))
    return of_run(served, workload.warm_up, workload.e2e_scale)


def _serve(
    fitted: Fitted, settings: EngineSettings, policy: PolicyDocument | None, arrivals: Sequence[Arrival]
) -> Sequence[Outcome]:
    from headrace_engine.sim.engine import Foresight  # noqa: PLC0415  vLLM takes ten seconds to import
    from headrace_engine.sim.run import simulate  # noqa: PLC0415

    knows = Foresight(cost=fitted.learned)
    return simulate(arrivals, settings, fitted.cost, policy, foresight=knows, host=fitted.host).outcomes


def settings_for(device: Device, workload: Workload, contestant: Contestant) -> EngineSettings:
    """Return the settings of a contestant's server; a policy's budget is in its document, not here.

    vLLM takes no budget below its --max-num-seqs, which is lowered with it.
    """
    settings = replace(device.settings, num_blocks=workload.blocks, watermark=contestant.watermark)
    budget = contestant.budget
    if contestant.name != TUNED or budget is None:
        return settings
    return replace(settings, max_num_batched_tokens=budget, max_num_seqs=min(budget, settings.max_num_seqs))


def alone(device: Device, fitted: Fitted, request: Arrival) -> float:
    """Return what a request takes on an idle engine with vLLM's default settings, seconds."""
    step = device.settings.max_num_batched_tokens
    return unloaded_seconds(fitted.cost, request.prompt_tokens, request.output_tokens, step)


def simulated_capacity(device: Device, fitted: Fitted, workload: Workload) -> float:
    """Return the requests a second that stock with default settings sustains when all wait, simulated."""
    from headrace_engine.sim.run import simulate  # noqa: PLC0415

    waiting = [replace(each, at=0.0) for each in workload.pool(device.clients * 8)]
    settings = settings_for(device, workload, Contestant(DEFAULT, None))
    return metrics.sustained_rate(simulate(waiting, settings, fitted.cost, host=fitted.host).outcomes)


def tune(device: Device, fitted: Fitted, workload: Workload, name: str, rate: float) -> Contestant:
    """Find the settings that serve best, simulated at `rate` requests a second.

    The step budget; for stock a watermark too, which policies' common server does without.
    """

    def means(contestant: Contestant) -> dict[str, float]:
        runs = [
            predict(device, fitted, workload, contestant, workload.arrivals(rate, seed))
            for seed in SEARCHED_SEEDS
        ]
        return {figure: statistics.fmean(run[figure] for run in runs) for figure in ("e2e_mean", "ttft_mean")}

    watermarks = workload.watermarks if name == TUNED else (0.0,)
    tried = [Contestant(name, budget, share) for share in watermarks for budget in device.budgets]
    return best({contestant: means(contestant) for contestant in tried})


def best(found: Mapping[Contestant, Mapping[str, float]]) -> Contestant:
    """Choose the one with the lowest mean TTFT of those whose mean E2E is as good as the lowest."""
    bound = AS_GOOD * min(means["e2e_mean"] for means in found.values())
    return min(
        (contestant for contestant, means in found.items() if means["e2e_mean"] <= bound),
        key=lambda contestant: found[contestant]["ttft_mean"],
    )
