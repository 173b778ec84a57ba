"""The simulator's baselines against what they are said to do, on the real scheduler under KV pressure."""

import pytest
from ep_adapter_trial import MARKS

from headrace_engine.cost import catalog
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS

COST = catalog.find("llama-3-8b", "H100")
LENGTHS = [(200 + 37 * place % 700, 30 + 53 * place % 300) for place in range(60)]
ARRIVALS = [Arrival(0.01 * place, *lengths) for place, lengths in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def tools():
    from headrace_engine.sim import baselines, engine, run, settings

    return {
        "settings": settings.EngineSettings(num_blocks=200, max_num_seqs=32),
        "engine": engine.SimulatedEngine,
        "simulate": run.simulate,
        "baselines": baselines,
    }


def mean_ttft(run):
    return sum(outcome.ttft for outcome in run.outcomes) / len(run.outcomes)


@pytest.mark.parametrize("budget", [0, 256])
@pytest.mark.parametrize("name", ["NoPreempt", "SPF", "SRPT", "TRAIL"])
def test_a_baseline_plans_every_step_itself_and_serves_everyone(tools, name, budget):
    policy = tools["baselines"].BASELINES[name](step_budget=budget)
    engine = tools["engine"](tools["settings"], COST, policy)
    for arrival in ARRIVALS:
        while engine.next_event_at < arrival.at:
            engine.advance()
        engine.add(arrival, arrival.at)
    while engine.next_event_at < float("inf"):
        engine.advance()
    assert not any(outcome.lost for outcome in engine.outcomes)
    guard = engine.scheduler._guard
    assert (guard.fallback_steps, guard.disabled) == (0, False)


def test_no_preempt_preempts_nobody_where_stock_does(tools):
    simulate, settings = tools["simulate"], tools["settings"]
    assert simulate(ARRIVALS, settings, COST).preemptions > 0
    assert simulate(ARRIVALS, settings, COST, tools["baselines"].no_preempt()).preemptions == 0


def test_foresight_and_short_prompts_start_sooner_than_stock_on_average(tools):
    simulate, settings = tools["simulate"], tools["settings"]
    stock = mean_ttft(simulate(ARRIVALS, settings, COST))
    for policy in (tools["baselines"].srpt(), tools["baselines"].shortest_prompt_first()):
        assert mean_ttft(simulate(ARRIVALS, settings, COST, policy)) < stock
