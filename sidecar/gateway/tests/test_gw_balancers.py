"""Every balancer on hand-made engines: SAL against Eq. 2 written out, and what each promises."""

from collections import Counter
from dataclasses import replace
from math import ceil, inf
from random import Random
from typing import get_args

import pytest
from gw_reports import IDLE
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts import GatewayConfig, SalParameters
from headrace_engine.contracts.gateway_config import Balancer
from headrace_gateway.balancers import BALANCERS, sal
from headrace_gateway.balancers.context import FIRST_GUESS, Context
from headrace_gateway.balancers.endpoint import Endpoint, Work
from headrace_gateway.balancers.waits import FAR, wait_seconds


def engine(number, report=IDLE):
    endpoint = Endpoint(f"10.0.0.{number}")
    if report is not None:
        endpoint.observe(report, 0.0)
    return endpoint


def context(**sal_parameters):
    return Context(Random(1), GatewayConfig("llm", "chat", (), "chat", sal=SalParameters(**sal_parameters)))


def send(name, engines, count, ctx, tokens=300.0):
    """Send `count` equal requests between two reports, keeping books as a fleet does; picks per address."""
    chosen = Counter()
    for turn in range(1, count + 1):
        endpoint = BALANCERS[name].pick(engines, Work(tokens=tokens), ctx)
        endpoint.book(Work(tokens=tokens), 0.0)
        endpoint.last_turn = turn
        chosen[endpoint.address] += 1
    return chosen


reports = st.builds(
    lambda **numbers: replace(IDLE, **numbers),
    running=st.integers(0, 300),
    waiting=st.integers(0, 1000),
    waiting_prefill_tokens=st.integers(0, 1_000_000),
    unfinished_prefill_tokens=st.integers(0, 8192),
    waiting_kv_blocks=st.integers(0, 60_000),
    free_kv_blocks=st.integers(0, 30_000),
    prefill_tokens_per_second=st.floats(100, 100_000),
    step_seconds=st.floats(0.001, 0.5),
    mean_prompt_tokens=st.floats(1, 8000),
    mean_output_tokens=st.floats(1, 2000),
)


def equation_2(report, booked, tokens, release):
    """The paper's load of one server, as its text defines the symbols."""
    queued = report.waiting_prefill_tokens + report.unfinished_prefill_tokens + booked + tokens
    needed = report.waiting_kv_blocks + ceil((booked + tokens) / report.block_size)
    i, o = report.mean_prompt_tokens, report.mean_output_tokens
    rate, typical = report.prefill_tokens_per_second, FIRST_GUESS.prefill
    if typical / FAR < rate < typical * FAR:
        rate = typical
    gross_tokens_per_step = max(report.running, 1) * (i + o) / o
    consumed = max(report.running, 1) if release == "Net" else 0
    blocks_per_second = (gross_tokens_per_step - consumed) / report.step_seconds / report.block_size
    return max(
        queued / rate,
        (needed - report.free_kv_blocks) / blocks_per_second,
    )


@pytest.mark.parametrize(
    ("own", "counts"), [(8_000.0, False), (12_000.0, False), (5_000.0, True), (20_000.0, True)]
)
def test_an_engine_is_as_fast_as_the_others_unless_it_is_far_from_them(own, counts):
    report = replace(IDLE, prefill_tokens_per_second=own, waiting_prefill_tokens=30_000)
    seconds = wait_seconds(engine(1, report), Work(tokens=10_000), context())
    assert seconds == pytest.approx(40_000 / (own if counts else 10_000.0))


@given(
    st.lists(reports, min_size=1, max_size=8),
    st.integers(1, 100_000),
    st.sampled_from(["Gross", "Net"]),
    st.data(),
)
def test_sal_is_equation_2(fleet, tokens, release, data):
    engines = [engine(number, report) for number, report in enumerate(fleet)]
    booked = [data.draw(st.integers(0, 50_000)) for _ in engines]
    for endpoint, amount in zip(engines, booked, strict=True):
        endpoint.book(Work(tokens=amount), 0.0)
    ctx = context(kv_release=release)
    loads = [equation_2(r, b, tokens, release) for r, b in zip(fleet, booked, strict=True)]
    for endpoint, load in zip(engines, loads, strict=True):
        assert wait_seconds(endpoint, Work(tokens=tokens), ctx) == pytest.approx(load)
    chosen = engines.index(sal.pick(engines, Work(tokens=tokens), ctx))
    assert loads[chosen] <= min(loads) + sal.TIE_SECONDS


@pytest.mark.parametrize("name", ["SAL", "LeastRequest", "RoundRobin"])
@pytest.mark.parametrize("engines", [1, 3, 7])
def test_equal_requests_between_two_reports_spread_evenly(name, engines):
    fleet = [engine(number) for number in range(engines)]
    chosen = send(name, fleet, 10 * engines, context())
    assert set(chosen.values()) == {10}
    assert len(chosen) == engines


def test_power_of_two_spreads_far_better_than_chance():
    spread = {}
    for name in ("PowerOfTwo", "Random"):
        chosen = send(name, [engine(number) for number in range(10)], 1000, context())
        spread[name] = max(chosen.values()) - min(chosen.values())
    assert spread["PowerOfTwo"] <= 10 < spread["Random"]


def test_sal_weighs_tokens_where_least_request_counts_requests():
    long_queue = engine(1, replace(IDLE, waiting=1, waiting_prefill_tokens=50_000))
    many_short = engine(2, replace(IDLE, waiting=20, waiting_prefill_tokens=2_000))
    assert sal.pick([long_queue, many_short], Work(tokens=100), context()) is many_short
    assert BALANCERS["LeastRequest"].pick([long_queue, many_short], Work(tokens=100), context()) is long_queue


def test_sal_waits_for_memory():
    full = engine(1, replace(IDLE, running=10, free_kv_blocks=0, waiting_kv_blocks=500))
    queued = engine(2, replace(IDLE, running=10, waiting_prefill_tokens=3_000))
    assert sal.pick([full, queued], Work(tokens=100), context()) is queued


def test_an_engine_that_tells_of_no_memory_is_not_waited_for_because_of_it():
    unknown = replace(IDLE, total_kv_blocks=0, free_kv_blocks=0, waiting_kv_blocks=500)
    known = replace(IDLE, free_kv_blocks=1000)
    work = Work(tokens=100)
    assert wait_seconds(engine(1, unknown), work, context()) == wait_seconds(
        engine(2, known), work, context()
    )


@given(st.lists(st.floats(0.0, 0.1), min_size=1, max_size=6))
def test_sal_takes_one_of_those_whose_waits_are_alike(seconds):
    fleet = [
        engine(number, replace(IDLE, waiting_prefill_tokens=round(10_000 * wait)))
        for number, wait in enumerate(seconds)
    ]
    work, ctx = Work(tokens=50), context()
    least = min(wait_seconds(endpoint, work, ctx) for endpoint in fleet)
    assert wait_seconds(sal.pick(fleet, work, ctx), work, ctx) <= least + sal.TIE_SECONDS


def test_sal_without_queues_prefers_the_engine_with_fewer_decodes():
    busy = engine(1, replace(IDLE, running=40))
    calm = engine(2, replace(IDLE, running=3, prefill_tokens_per_second=9_950.0))
    assert sal.pick([busy, calm], Work(tokens=100), context()) is calm


@given(st.booleans(), st.integers(0, 1_000_000), st.integers(0, 100_000))
def test_unknown_rates_give_finite_waits(reporting, queued, needed):
    """A cold engine, or one that never reported, is taken for typical; nothing divides by zero."""
    unknown = replace(
        IDLE,
        waiting_prefill_tokens=queued,
        waiting_kv_blocks=needed,
        free_kv_blocks=0,
        block_size=0,
        prefill_tokens_per_second=0.0,
        step_seconds=0.0,
        mean_prompt_tokens=0.0,
        mean_output_tokens=0.0,
    )
    wait = wait_seconds(engine(1, unknown if reporting else None), Work(tokens=10), context())
    assert 0 < wait < inf


def test_round_robin_stays_fair_when_an_engine_joins():
    fleet = [engine(1), engine(2)]
    ctx = context()
    send("RoundRobin", fleet, 4, ctx)
    fleet.append(engine(3))
    endpoint = BALANCERS["RoundRobin"].pick(fleet, Work(), ctx)
    assert endpoint is fleet[2]


@pytest.mark.parametrize("name", BALANCERS)
def test_every_balancer_takes_the_only_engine(name):
    only = engine(1)
    assert BALANCERS[name].pick([only], Work(tokens=1), context()) is only


def test_there_is_a_balancer_for_every_name_of_the_api():
    assert list(BALANCERS) == list(get_args(Balancer))
