"""The simulator's baselines against what they are said to do, on the real scheduler under KV pressure."""

import dataclasses

import pytest
from ep_adapter_trial import MARKS

from headrace_engine.cost import catalog
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS

NAMES = ["NoPreempt", "SPF", "SRPT", "TRAIL", "Orca", "SRTF", "FastServe", "Sarathi", "MultiRes", "MLFQ"]
COST = catalog.find_cost_model("llama-3-8b", "H100")
LENGTHS = [(200 + 37 * place % 700, 30 + 53 * place % 300) for place in range(60)]
ARRIVALS = [Arrival(0.01 * place, *lengths) for place, lengths in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def tools():
    from headrace_engine.sim import baselines, engine, run, settings

    return {
        "settings": settings.EngineSettings(num_blocks=200, max_num_seqs=32, max_model_len=1280),
        "engine": engine.SimulatedEngine,
        "serve": run.serve,
        "simulate": run.simulate,
        "baselines": baselines,
    }


def mean_ttft(run):
    return sum(outcome.ttft for outcome in run.outcomes) / len(run.outcomes)


@pytest.mark.parametrize(("name", "budget"), [*((name, 256) for name in NAMES), ("SRPT", 0), ("MultiRes", 0)])
def test_a_baseline_plans_every_step_itself_and_serves_everyone(tools, name, budget):
    policy = tools["baselines"].BASELINES[name](step_budget=budget)
    engine = tools["engine"](tools["settings"], COST, policy)
    tools["serve"](engine, ARRIVALS)
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


def peak_running(tools, policy, arrivals=ARRIVALS, **changed):
    """Most requests that ran at once, and the whole engine."""
    engine = tools["engine"](dataclasses.replace(tools["settings"], **changed), COST, policy)
    most = 0
    for arrival in arrivals:
        engine.add(dataclasses.replace(arrival, at=0.0), 0.0)
    while engine.next_event_at < float("inf"):
        engine.advance()
        most = max(most, len(engine.scheduler.running))
    return most, engine


def test_orca_keeps_the_whole_context_for_each_and_runs_eight_at_most(tools):
    orca = tools["baselines"].orca
    assert peak_running(tools, orca(), num_blocks=1000)[0] == 8
    most, engine = peak_running(tools, orca())
    assert most == 199 // 80
    assert engine.preemptions == 0
    started = [outcome.started_at for outcome in engine.outcomes]
    assert started == sorted(started)


def test_srtf_gives_a_short_request_the_place_of_a_long_one(tools):
    long, short = Arrival(0.0, 500, 400), Arrival(1.0, 20, 5)
    run = tools["simulate"]([long, short], tools["settings"], COST, tools["baselines"].srtf(batch=1))
    assert [outcome.preemptions for outcome in run.outcomes] == [1, 0]
    assert run.outcomes[1].finished_at < run.outcomes[0].finished_at
    orca = tools["simulate"]([long, short], tools["settings"], COST, tools["baselines"].orca(batch=1))
    assert orca.outcomes[1].started_at >= orca.outcomes[0].finished_at


def test_fast_serve_sinks_a_request_as_it_runs_and_skips_levels_for_long_prompts(tools):
    from headrace_engine.sim.baselines import feedback_queue

    levels = [feedback_queue.level(100, output) for output in (0, 102, 104, 616, 100_000)]
    assert levels == [0, 0, 1, 2, feedback_queue.LEVELS - 1]
    assert [feedback_queue.level(prompt, 0) for prompt in (512, 513, 2049, 10**6)] == [0, 1, 2, 4]
    long, short = Arrival(0.0, 100, 400), Arrival(2.0, 100, 5)
    policy = tools["baselines"].fast_serve(batch=1)
    run = tools["simulate"]([long, short], tools["settings"], COST, policy)
    assert [outcome.preemptions for outcome in run.outcomes] == [1, 0]


def test_mlfq_gives_who_is_new_the_kv_of_who_has_run_for_long(tools):
    arrivals = [
        Arrival(0.0, 100, 1100),
        Arrival(0.0, 100, 1100),
        Arrival(0.0, 100, 1100),
        Arrival(6.0, 800, 5),
    ]
    stock, ours = (
        tools["simulate"](arrivals, tools["settings"], COST, policy).outcomes
        for policy in (None, tools["baselines"].mlfq())
    )
    assert ours[-1].started_at - 6.0 < 0.1 < stock[-1].started_at - 6.0
    assert sum(outcome.preemptions for outcome in ours) > sum(outcome.preemptions for outcome in stock)


def test_mlfq_promotes_who_waited_for_long(tools):
    crowd = [Arrival(0.0, 100, 1100), *(Arrival(2.0 + 0.3 * place, 400, 200) for place in range(80))]
    few = dataclasses.replace(tools["settings"], max_num_seqs=4)
    soon, late = (
        tools["simulate"](crowd, few, COST, tools["baselines"].mlfq(starvation=starvation)).outcomes[0]
        for starvation in (1.0, 100.0)
    )
    assert soon.finished_at < late.finished_at / 2


def test_sarathi_keeps_steps_small_and_decodes_going(tools):
    decode, prompt = Arrival(0.0, 50, 300), Arrival(0.5, 6000, 5)
    simulate, settings = tools["simulate"], tools["settings"]
    large = dataclasses.replace(settings, num_blocks=1000, max_num_batched_tokens=8192, max_model_len=8192)
    stock = simulate([decode, prompt], large, COST).outcomes[0]
    sarathi = simulate([decode, prompt], large, COST, tools["baselines"].sarathi()).outcomes[0]
    assert sarathi.longest_gap < stock.longest_gap / 4


def test_multi_res_preempts_nobody_and_takes_what_fills_the_step(tools):
    policy = tools["baselines"].multi_res()
    most, engine = peak_running(tools, policy, num_blocks=150)
    assert most > 1
    assert engine.preemptions == 0
    lengths = [Arrival(0.0, 100, 50), Arrival(0.0, 900, 50)]
    run = tools["simulate"](lengths, tools["settings"], COST, tools["baselines"].multi_res(900))
    assert run.outcomes[1].started_at < run.outcomes[0].started_at
