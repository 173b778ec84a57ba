"""How fast the simulator is: `python -m e2e.bench.sim_speed`.

One engine (Llama-3-8B on an H100, asynchronous scheduling) serves 2,000 requests of the Azure conversation
trace at 12 requests/s, which takes about 14,000 steps of some 35 requests each; steps are counted per second
of CPU time, so another process on the machine matters little. `busy` figures are at 18.45 requests/s, nine
tenths of saturation: fewer steps, of some 90 requests. `cached` figures are with prefix caching, as the
studies run; the others without, so that they compare with those of earlier versions. The fleet is 16 such
engines behind the gateway's SAL with reports every 50 ms and 10,000 requests at 230/s, timed by the wall.
"""

import itertools
import os
import time
from dataclasses import replace

from e2e.bench.report import results
from e2e.bench.runs import workloads
from e2e.bench.runs.command_line import describe
from e2e.bench.runs.engine import ENGINES, cost_of
from e2e.bench.runs.fleet import FleetCase, TimedFleet, run_fleet
from headrace_engine.contracts import PolicyDocument
from headrace_engine.sim.workloads.arrival import Arrival

ENGINE = "llama-3-8b-h100"
REQUESTS = 2000
RATES = {"": 12.0, "_busy": 18.45}  # requests/s
POLICIES = {"fcfs": PolicyDocument("FCFS"), "larry": PolicyDocument("LARRY")}
FLEET = TimedFleet(FleetCase("conversation-poisson", "sal", load=0.7, engines=16, requests=625), rate=230.0)


def main() -> None:
    """Measure and write the figures."""
    describe(__doc__).parse_args()
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    os.environ["OMP_NUM_THREADS"] = "1"
    figures: dict[str, float] = {}
    longest = ENGINES[ENGINE].settings.max_model_len
    one_engine(workloads.make("conversation", 20, 1.0, 0, longest), "fcfs")  # imports and configuration
    for suffix, rate in RATES.items():
        arrivals = workloads.make("conversation", REQUESTS, rate, 0, longest)
        for policy, caching in itertools.product(POLICIES, (False, True)):
            steps, seconds = one_engine(arrivals, policy, caching=caching)
            key = f"steps_per_second_{policy}{suffix}{'_cached' * caching}"
            figures[key] = round(steps / seconds)
            print(f"  {key:34}{figures[key]:7.0f}   {steps} steps in {seconds:.2f} s", flush=True)
    started = time.perf_counter()
    run_fleet(FLEET)
    key = "fleet_16x10000_seconds"
    figures[key] = round(time.perf_counter() - started, 1)
    print(f"  {key:34}{figures[key]:7.1f}", flush=True)
    print(results.write("sim_speed", "python -m e2e.bench.sim_speed", figures))


def one_engine(arrivals: list[Arrival], policy: str, *, caching: bool = False) -> tuple[int, float]:
    """Measure how many steps one engine makes, and the seconds of CPU time for them."""
    from headrace_engine.sim.run import simulate  # noqa: PLC0415  vLLM takes ten seconds to import

    settings = replace(ENGINES[ENGINE].settings, prefix_caching=caching)
    cost = cost_of(ENGINE, 1.0, 0.0)
    started = time.process_time()
    run = simulate(arrivals, settings, cost, POLICIES[policy])
    return run.steps, time.process_time() - started


if __name__ == "__main__":
    main()
