"""Reshaped and generated workloads: right number, right rate, sorted, the same for the same seed."""

import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.sim.workloads import servegen, shape
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.chats import BLOCK, Habits, make_chats
from headrace_engine.sim.workloads.shape import Scale

TRACE = [Arrival(float(i * i), 10 + i, 1 + i % 5) for i in range(100)]


def gaps(arrivals):
    return [after.at - before.at for before, after in pairwise(arrivals)]


def variation(arrivals):
    return statistics.pstdev(gaps(arrivals)) / statistics.fmean(gaps(arrivals))


def test_window_counts_from_its_start():
    arrivals = [Arrival(at, 10, 5) for at in (0.0, 1.0, 2.5, 3.0)]
    assert [each.at for each in shape.cut_window(arrivals, start=1, seconds=2)] == [0.0, 1.5]


def test_thinned_parts_share_nothing_and_lose_nothing():
    parts = [list(shape.take_every(TRACE, every=3, offset=offset)) for offset in range(3)]
    assert sorted((each for part in parts for each in part), key=lambda each: each.at) == TRACE


@given(st.integers(1, 20_000), st.integers(1, 2_000), st.floats(0.5, 64), st.floats(0.5, 64))
def test_scaled_lengths_are_linear_below_the_cap(prompt, output, prompt_divisor, output_divisor):
    scaled = Scale(prompt_divisor, output_divisor, prompt_limit=1500, output_limit=200)(
        Arrival(1.5, prompt, output)
    )
    assert scaled.at == 1.5
    for length, original, divisor, limit in (
        (scaled.prompt_tokens, prompt, prompt_divisor, 1500),
        (scaled.output_tokens, output, output_divisor, 200),
    ):
        assert 1 <= length <= limit
        assert length == limit or original / divisor <= length < original / divisor + 1


def test_scale_refuses_zero():
    with pytest.raises(ValueError, match="above zero"):
        Scale(0, 1, 1, 1)


@pytest.mark.parametrize(("seeds", "shared"), [((0, 1, 2), range(10, 100)), ((-3, -2, -1), range(20, 110))])
def test_segments_share_nothing_from_either_end(seeds, shared):
    parts = [shape.take_segment(TRACE, 30, seed) for seed in seeds]
    assert [each.prompt_tokens for part in parts for each in part] == list(shared)
    assert all(part[0].at == 0 for part in parts)


@pytest.mark.parametrize(("count", "seed"), [(30, 3), (30, -4), (101, 0), (0, 0)])
def test_a_segment_that_would_repeat_requests_is_refused(count, seed):
    with pytest.raises(ValueError, match=rf"segment {seed} of {count} requests: the trace has 100"):
        shape.take_segment(TRACE, count, seed)


@given(st.floats(0.01, 1000))
def test_a_stretched_trace_has_the_rate_and_its_bursts(rate):
    stretched = shape.at_rate(TRACE, rate)
    assert len(stretched) / stretched[-1].at == pytest.approx(rate)
    assert variation(stretched) == pytest.approx(variation(TRACE))


def test_what_cannot_be_stretched():
    with pytest.raises(ValueError, match="not above zero"):
        shape.at_rate(TRACE, 0)
    with pytest.raises(ValueError, match="different times"):
        shape.at_rate(TRACE[:1], 1)


@pytest.mark.parametrize("wanted", [0.5, 1.0, 3.0])
def test_made_up_times_have_rate_and_variation(wanted):
    made = shape.draw_renewal(TRACE, 5000, 7.0, seed=3, variation=wanted)
    assert len(made) / made[-1].at == pytest.approx(7.0)
    assert variation(made) == pytest.approx(wanted, rel=0.15)
    assert made == shape.draw_renewal(TRACE, 5000, 7.0, seed=3, variation=wanted)
    assert made != shape.draw_renewal(TRACE, 5000, 7.0, seed=4, variation=wanted)
    first = sorted(each.prompt_tokens for each in made[:100])
    assert first == list(range(10, 110)), "none twice before all are used"


def test_spread_fills_the_grid_and_stays_sorted():
    batches = [Arrival(3.0 * (i // 10), i + 1, 1) for i in range(100)]
    moved = shape.spread_times(batches, 3.0, seed=1)
    assert [each.at for each in moved] == sorted(each.at for each in moved)
    assert len({each.at for each in moved}) == 100
    recorded = {each.prompt_tokens: each.at for each in batches}
    assert all(0 <= each.at - recorded[each.prompt_tokens] < 3 for each in moved)


def test_chats_grow_by_answer_and_new_text():
    made = make_chats(TRACE, 400, 5.0, seed=2, longest=1000, habits=Habits(mean_turns=4, system_tokens=32))
    assert len(made) == 400
    assert len(made) / made[-1].at == pytest.approx(5.0)
    assert max(each.tokens for each in made) <= 1000
    by_chat = {}
    for each in made:
        assert each.prefix_block == BLOCK
        assert (len(each.prefix) - 1) * BLOCK < each.prompt_tokens <= len(each.prefix) * BLOCK
        assert each.prefix[:2] == (0, 1)
        by_chat.setdefault(each.client, []).append(each)
    turns = [pair for chat in by_chat.values() for pair in pairwise(chat)]
    assert len(turns) > 100
    for before, after in turns:
        assert after.at > before.at
        assert after.prompt_tokens > before.tokens
        assert after.prefix[: len(before.prefix)] == before.prefix
    one, other = (chat[-1].prefix for chat in list(by_chat.values())[:2])
    assert not set(one[2:]) & set(other[2:])


def test_habits_nobody_has():
    with pytest.raises(ValueError, match="mean_turns"):
        Habits(mean_turns=0.5)


QUANTILES = [10, 20, 30, 40, 50, 60]


def test_servegen_clients_send_at_their_rates():
    client = servegen.Client(
        "a",
        [
            servegen.Window(0, 0.5, "Gamma", 0.1),
            servegen.Window(600, 2.0, "Weibull", 0.5),
            servegen.Window(1200, 9.0, "Gamma", 1.0),
        ],
        {0.0: QUANTILES, 600.0: [1000.0] * 6},
        {0.0: [1.0] * 6},
    )
    made = servegen.generate_requests([client], 0, 1200, seed=1)
    early = [each for each in made if each.at < 600]
    assert len(early) == 300
    assert len(made) == 1500
    assert all(10 <= each.prompt_tokens <= 60 and each.output_tokens == 1 for each in early)
    assert statistics.median(each.prompt_tokens for each in early) == pytest.approx(30, abs=2)
    assert {each.prompt_tokens for each in made if each.at >= 600} == {1000}
    assert [each.at for each in made] == sorted(each.at for each in made)
    assert made == servegen.generate_requests([client], 0, 1200, seed=1)
    assert variation(early) > 2, "a Gamma of shape 0.1 is bursty"
    late = servegen.generate_requests([client], 300, 600, seed=1)
    assert len(late) == pytest.approx(150 + 600, rel=0.25)
    assert max(each.at for each in late) < 600


def test_servegen_leaves_clients_without_lengths_out(tmp_path):
    import gzip

    rates, lengths = tmp_path / "rates.csv.gz", tmp_path / "lengths.csv.gz"
    rates.write_bytes(
        gzip.compress(
            b"client,window_start_s,rate_rps,iat_cv,dist,param1,param2\n"
            b"0,600,1.5,1,Gamma,1,1\n0,0,1.0,1,Weibull,0.5,1\n1,0,9,1,Gamma,1,1\n"
        )
    )
    row = b"%d,0,%s,5,1,2,3,4,5,6\n"
    lengths.write_bytes(
        gzip.compress(
            b"client,window_start_s,field,mean,p5,p25,p50,p75,p95,p99\n"
            + row % (0, b"input_tokens")
            + row % (0, b"output_tokens")
            + row % (0, b"reason_ratio")
            + row % (1, b"input_tokens")
        )
    )
    (client,) = servegen.read_clients(rates, lengths)
    assert [window.start for window in client.windows] == [0, 600]
    assert client.windows[0] == servegen.Window(0, 1.0, "Weibull", 0.5)
    assert client.prompts == client.outputs == {0.0: [1, 2, 3, 4, 5, 6]}
