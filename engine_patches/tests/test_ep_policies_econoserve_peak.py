"""The predicted peak of KV against use counted out step by step."""

import dataclasses

import pytest
from ep_engine_view import LIMITS, FakeRequest, FakeView
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.policies.econoserve.padded_lengths import PaddedLengths
from headrace_engine.policies.econoserve.peak import FuturePeak

SMALL = dataclasses.replace(LIMITS, total_blocks=50)
WINDOWED = dataclasses.replace(SMALL, other_groups=((16, 4),))
WASTE = (SMALL.block_size - 1) / 2

sizes = st.tuples(st.integers(1, 300), st.integers(1, 60))
"""Tokens held and output tokens left."""


def holding(tokens, left):
    return FakeRequest("r", 0.0, tokens, num_computed_tokens=tokens - 1, max_tokens=left)


def counted(running, candidate, limits):
    """Most tokens in use, as predicted, at any step until the candidate ends."""
    everyone = [
        (tokens, left, 16 * limits.other_blocks(tokens + left)) for tokens, left in [*running, candidate]
    ]
    return max(
        sum(tokens + step + others + WASTE for tokens, left, others in everyone if left >= step)
        for step in range(candidate[1] + 1)
    )


@settings(max_examples=60)
@given(st.lists(sizes, max_size=8), sizes, st.sampled_from([0, 10]), st.sampled_from([SMALL, WINDOWED]))
def test_fits_is_use_counted_out(running, candidate, reserved, limits):
    peak = FuturePeak(limits, reserved, PaddedLengths(0, 0))
    peak.follow(FakeView(running=[holding(*each) for each in running], limits=limits))
    capacity = SMALL.total_blocks * SMALL.block_size * (100 - reserved) / 100
    assert peak.fits(*candidate) == (counted(running, candidate, limits) <= capacity)


@settings(max_examples=40)
@given(st.lists(sizes, min_size=1, max_size=8), sizes, st.integers(1, 40), st.data())
def test_steps_that_go_on_as_predicted_need_no_look(running, candidate, steps, data):
    """Following from the start and beginning afresh give the same answers, also after misses and ends."""
    limits = data.draw(st.sampled_from([SMALL, WINDOWED]))
    requests = [holding(*each) for each in running]
    view = FakeView(running=requests, limits=limits)
    peak = FuturePeak(limits, 0, PaddedLengths(0, 0))
    peak.follow(view)
    for _ in range(steps):
        if data.draw(st.booleans()):
            peak.prepare(view)  # beside the device, so before the step's tokens are there
        for request in list(requests):
            request.num_tokens += 1
            request.num_output_tokens += 1
            if request.num_output_tokens == request.max_tokens:
                requests.remove(request)
        if requests and data.draw(st.integers(0, 9)) == 0:
            requests.pop(data.draw(st.integers(0, len(requests) - 1)))
        peak.follow(view)
    afresh = FuturePeak(limits, 0, PaddedLengths(0, 0))
    afresh.follow(view)
    assert peak.fits(*candidate) == afresh.fits(*candidate)
    assert peak._entries.keys() == set(requests)
    assert len(peak._sorted) == len(requests)


def test_who_goes_on_beyond_its_end_is_looked_at_before_the_next_step(monkeypatch):
    request = holding(100, 50)
    view = FakeView(running=[request], limits=SMALL, outputs={request.request_id: 3.0})
    peak = FuturePeak(SMALL, 0, PaddedLengths(0, 0))
    peak.follow(view)
    for output in (1, 2):
        peak.prepare(view)
        assert not view.predicted_ahead
        request.num_tokens, request.num_output_tokens = 100 + output, output
        peak.follow(view)
    monkeypatch.setattr(FakeView, "predict_ahead", lambda *_: 9.0)
    peak.prepare(view)
    assert peak._entries[request][0] == peak._step + 1  # it is amid its prefill, so no token will come
    request.num_computed_tokens = request.num_tokens
    peak.prepare(view)
    assert peak._entries[request][0] == peak._step + 7
    request.num_tokens, request.num_output_tokens = 103, 3
    monkeypatch.setattr(FakeView, "predicted_output", lambda *_: pytest.fail("a step waits for this"))
    peak.follow(view)
    assert peak._entries[request][0] == peak._step + 6


def test_who_left_since_the_step_was_planned_is_not_looked_at_beforehand():
    request = holding(100, 1)
    view = FakeView(running=[request], limits=SMALL)
    peak = FuturePeak(SMALL, 0, PaddedLengths(0, 0))
    peak.follow(view)
    view.running.clear()
    peak.prepare(view)
    assert not view.predicted_ahead
    peak.follow(view)
    assert not peak._entries


def test_room_that_is_free_again_in_time_serves_another():
    """Two that would not fit side by side to their ends fit, since one ends before the other grows."""
    capacity = SMALL.total_blocks * SMALL.block_size  # 800
    peak = FuturePeak(SMALL, 0, PaddedLengths(0, 0))
    peak.follow(FakeView(running=[holding(100, 600)], limits=SMALL))
    assert capacity < 100 + 600 + 250 + 200
    assert peak.fits(250, 200)
    assert not peak.fits(250, 300)


def test_who_is_put_back_takes_no_room_from_those_behind():
    """For want of an adapter's place, or while a grammar compiles: vLLM goes on with the next."""
    blocked = [holding(300, 300) for _ in range(5)]
    for request in blocked:
        request.num_computed_tokens = 0
    eligible = holding(100, 100)
    view = FakeView(running=[holding(10, 10)], limits=SMALL)
    peak = FuturePeak(SMALL, 0, PaddedLengths(0, 0))
    peak.follow(view)
    reached = []
    for request in peak.admit([*blocked, eligible], view):
        reached.append(request)
        if request is eligible:
            view.running.append(request)
    assert reached == [*blocked, eligible]
    assert set(peak._entries) == set(view.running)


def test_padding_and_reserve_make_it_stricter():
    running = holding(400, 1000)
    view = FakeView(running=[running], limits=SMALL, outputs={running.request_id: 100.0})
    for padding, reserved, fits in ((0, 0, True), (100, 0, False), (0, 40, False)):
        peak = FuturePeak(SMALL, reserved, PaddedLengths(padding, 0))
        peak.follow(view)
        assert peak.fits(100, 200) == fits, (padding, reserved)
