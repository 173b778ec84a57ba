"""`Quantile` learns what requests agree in, backs off where it knows little, follows drift, stays small."""

import random

import pytest
from ep_prediction import asked, told
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.prediction import quantile
from headrace_engine.prediction.quantile import FEWEST, WINDOW, Quantile, cells_of, length_step, pinball_loss
from headrace_engine.prediction.window import Window


@given(
    st.lists(st.integers(0, 50) | st.integers(0, 10**6)),
    st.integers(1, 9),
    st.floats(0, 1),
    st.integers(-1, 60),
)
def test_a_window_knows_the_quantiles_of_its_last_values(values, size, share, floor):
    window = Window(size)
    for value in values:
        window.add(value)
    kept = sorted(value for value in values[-size:] if value > floor)
    assert len(window) == len(values[-size:])
    assert window.above(floor) == len(kept)
    if kept:
        found = window.quantile(share, floor)
        assert sum(value <= found for value in kept) >= share * len(kept) - 1e-9
        assert found == kept[0] or sum(value < found for value in kept) < share * len(kept)


def test_a_window_clips_what_it_cannot_hold():
    window = Window(4)
    for value in (-5, 10**20):
        window.add(value)
    assert (window.quantile(0), window.quantile(1)) == (0, 2**32 - 1)


@given(st.integers(-3, 10**9), st.integers(1, 10**6), st.integers(1, 5))
def test_lengths_fall_into_steps_in_their_order(tokens, more, fineness):
    assert length_step(tokens, fineness) <= length_step(tokens + more, fineness)
    if tokens >= 0:
        assert length_step(tokens, fineness) < length_step(2 * tokens + 1, fineness)


def test_a_doubling_has_the_steps_it_should():
    assert len({length_step(tokens, 2) for tokens in range(1024, 2048)}) == 4
    assert length_step(64, 2) == length_step(79, 2) != length_step(80, 2)


@pytest.mark.parametrize("told_by", ["prompt_tokens", "prefix", "max_tokens"])
def test_what_tells_lengths_apart_is_found(told_by):
    chance, predictor = random.Random(2), Quantile()
    seen = {"prompt_tokens": 100, "prefix": 1, "max_tokens": 4000}
    for _ in range(600):
        kind = chance.randrange(2)
        noise = {name: value + chance.randrange(value) for name, value in seen.items() if name != "prefix"}
        request = seen | noise | {told_by: seen[told_by] * (1 + 3 * kind)}
        told(predictor, [50 + 500 * kind + chance.randrange(20)], **request)
    short, long = (asked(100, 4000, prefix=1), asked(**_as_asked(seen, told_by)))
    assert 50 <= predictor.predict(short) < 70
    assert 550 <= predictor.predict(long) < 570


def _as_asked(seen, told_by):
    request = seen | {told_by: 4 * seen[told_by]}
    return {"prompt": request["prompt_tokens"], "limit": request["max_tokens"], "prefix": request["prefix"]}


def test_a_kind_that_tells_nothing_is_not_preferred():
    """Prefixes that are all different, as of chats without a system prompt, never get cells that speak."""
    chance, predictor = random.Random(3), Quantile()
    for number in range(1000):
        told(predictor, [chance.randrange(100, 200)], prefix=number, prompt_tokens=chance.randrange(10, 5000))
    assert predictor.predict(asked(prefix=5)) == pytest.approx(150, abs=15)


def test_few_samples_back_off_to_more_general_cells():
    predictor = told(Quantile(), [100] * 200, prefix=1)
    told(predictor, [900] * (FEWEST - 1), prefix=2, prompt_tokens=3000)
    assert predictor.predict(asked(3000, prefix=2)) == 100
    told(predictor, [900] * 60, prefix=2, prompt_tokens=3000)
    assert predictor.predict(asked(3000, prefix=2)) == 900
    assert predictor.predict(asked(prefix=1)) == 100


TOLD = {share: told(Quantile(share), range(1, 201)) for share in (0.1, 0.5, 0.9)}


@given(st.integers(0, 400), st.sampled_from(sorted(TOLD)))
def test_a_request_under_way_is_predicted_by_those_that_were_longer(so_far, share):
    again = TOLD[share].repredict(asked(), so_far)
    longer = [length for length in range(1, 201) if length > so_far]
    if len(longer) >= FEWEST:
        assert again == longer[max(-int(-share * len(longer) // 1) - 1, 0)]
    else:
        assert again == 2 * so_far


def test_predictions_of_the_rest_only_grow():
    predictor = told(Quantile(), [random.Random(4).randrange(1, 2000) for _ in range(300)])
    again = [predictor.repredict(asked(), so_far) for so_far in range(0, 3000, 7)]
    assert again == sorted(again)


def test_a_change_is_followed_within_the_window():
    predictor = told(Quantile(), [100] * 2000)
    told(predictor, [700] * (WINDOW // 2 + 1))
    assert predictor.predict(asked()) == 700


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_share_below_the_prediction_is_the_one_asked_for(share):
    chance, predictor, below = random.Random(5), Quantile(share), 0
    for number in range(3000):
        features = asked(int(2 ** chance.uniform(4, 12)), prefix=chance.randrange(20))
        length = int(chance.lognormvariate(4, 0.8) + features.prompt_tokens / 10)
        below += number >= 1000 and length <= predictor.predict(features)
        predictor.learn(features, length)
    assert below / 2000 == pytest.approx(share, abs=0.05)


def test_the_loss_is_least_at_the_quantile():
    lengths = range(1, 101)
    best = min(range(1, 101), key=lambda told: sum(pinball_loss(told, length, 0.8) for length in lengths))
    assert best == 80


def test_cells_are_bounded_and_the_stale_ones_go_first(monkeypatch):
    monkeypatch.setattr(quantile, "CELLS", 50)
    predictor = told(Quantile(), range(500), prefix=9)
    for number in range(200):
        told(predictor, [number], prefix=1000 + number, prompt_tokens=number)
        told(predictor, [50], prefix=9)
        assert len(predictor._cells) <= 50
        assert all(len(cell) <= WINDOW for cell in predictor._cells.values())
    assert set(cells_of(asked(prefix=9))) <= predictor._cells.keys()
