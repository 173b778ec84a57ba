"""What becomes of requests in a group: alone as the cost model says, together longer, all served."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.cost import catalog
from headrace_engine.cost.model import unloaded_seconds
from headrace_operator.placement.problem import Request
from headrace_operator.placement.shared_group import Load, serve_group
from headrace_operator.placement.step_times import StepTimes

COST = catalog.find_cost_model("llama-3-8b", "H100", 1)
TIMES = StepTimes(COST, 8192)


def load(*requests, kv_tokens=100_000, most_running=1024, mean_alone=1.0, times=TIMES):
    return Load([Request(*each) for each in requests], times, kv_tokens, most_running, mean_alone)


def serve(*loads):
    return [[(each.ttft, each.e2e) for each in answered] for answered in serve_group(loads)]


def test_a_request_alone_takes_what_the_cost_model_says_and_the_host_adds():
    [[(_, e2e)]] = serve(load((3.0, 500, 100)))
    assert unloaded_seconds(COST, 500, 100) < e2e < 1.15 * unloaded_seconds(COST, 500, 100)


def test_requests_of_one_engine_are_batched():
    [[(_, alone)]] = serve(load((0.0, 100, 200)))
    [eight] = serve(load(*[(0.0, 100, 200)] * 8))
    assert alone < max(e2e for _, e2e in eight) < 1.3 * alone


def test_engines_that_share_take_twice_as_long_at_the_same_time_and_none_longer_after_another():
    one = (0.0, 500, 200)
    [[(_, alone)]] = serve(load(one))
    [[(_, together)], _] = serve(load(one), load(one))
    [[(_, first)], [(_, second)]] = serve(load(one), load((10.0, 500, 200)))
    assert 1.9 * alone < together < 2.2 * alone
    assert first == pytest.approx(second) == pytest.approx(alone)


def test_a_service_of_short_requests_has_the_larger_share():
    requests = [(0.0, 500, 200)] * 4
    [short, long] = serve(load(*requests, mean_alone=1.0), load(*requests, mean_alone=10.0))
    assert 1.5 * short[0][1] < long[0][1]


def test_whom_the_kv_cache_has_no_room_for_waits():
    two = [(0.0, 1000, 200)] * 2
    [[_, (beside, _)]] = serve(load(*two))
    [[(_, ended), (waited, _)]] = serve(load(*two, kv_tokens=1500))
    assert waited > ended > 10 * beside


def test_whom_the_engine_has_no_place_for_waits():
    [[(_, ended), (waited, _)]] = serve(load(*[(0.0, 100, 200)] * 2, most_running=1))
    assert waited > ended


def test_a_long_prompt_is_computed_in_steps_and_the_others_go_on_decoding():
    decoding = (0.0, 100, 50)
    [[(_, alone)]] = serve(load(decoding))
    [[(_, beside), (ttft, _)]] = serve(load(decoding, (0.1, 40_000, 1)))
    [[(prompt_alone, _)]] = serve(load((0.1, 40_000, 1)))
    assert alone + prompt_alone / 2 < beside
    assert prompt_alone <= ttft < 1.1 * prompt_alone


REQUESTS = st.lists(
    st.tuples(st.floats(0, 20), st.integers(1, 20_000), st.integers(1, 2000)), max_size=30
).map(sorted)


@settings(deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=3), st.sampled_from([2000, 50_000]), st.sampled_from([1, 256]))
def test_everybody_is_served_and_nobody_faster_than_alone(services, kv_tokens, most_running):
    loads = [load(*requests, kv_tokens=kv_tokens, most_running=most_running) for requests in services]
    for requests, answered in zip(services, serve(*loads), strict=True):
        for (_, prompt, output), (ttft, e2e) in zip(requests, answered, strict=True):
            assert 0 < ttft <= e2e
            assert e2e > 0.9 * unloaded_seconds(COST, prompt, output, 8192)
