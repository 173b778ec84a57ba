"""What encoders still have to do, and how long they take."""

from types import SimpleNamespace

import pytest

from headrace_engine.adapter.encoder import LATEST, Encoders, EncoderTime, count_encoded


def request(*places):
    """With a picture at each of `places`: (its name, the tokens before it, its tokens)."""
    features = [
        SimpleNamespace(identifier=name, mm_position=SimpleNamespace(offset=before, length=tokens))
        for name, before, tokens in places
    ]
    return SimpleNamespace(mm_features=features, get_num_encoder_embeds=lambda place: places[place][2] // 2)


def scheduler(*kept, encoder_decoder=False):
    return SimpleNamespace(
        is_encoder_decoder=encoder_decoder, encoder_cache_manager=SimpleNamespace(cached=set(kept))
    )


def test_an_encoder_is_as_fast_as_most_of_its_latest_steps_say():
    time = EncoderTime()
    assert time.per_token == 0
    time.add(100, 30.0)  # the first step compiles
    for number in range(LATEST):
        time.add(100, 0.1 if number % 3 else 5.0)  # the machine stalls now and then
    assert time.per_token == pytest.approx(0.001)
    for _ in range(LATEST):
        time.add(100, 0.2)
    assert time.per_token == pytest.approx(0.002)


def test_an_encoder_never_takes_less_than_no_time():
    time = EncoderTime()
    time.add(0, 1.0)
    assert time.per_token == 0
    time.add(100, -1.0)
    assert time.per_token == 0


def test_pictures_are_missing_that_are_neither_kept_nor_behind_what_is_computed():
    pictured, encoders = request(("a", 10, 100), ("b", 200, 60), ("a", 300, 100)), Encoders(scheduler("b"))
    missing = [encoders.missing(pictured, computed) for computed in (0, 109, 110, 399, 400)]
    assert missing == [100, 100, 50, 50, 0]


def test_what_is_heard_is_encoded_before_the_first_token():
    heard, encoders = request(("a", 0, 1500)), Encoders(scheduler(encoder_decoder=True))
    assert [encoders.missing(heard, computed) for computed in (0, 1)] == [750, 0]


def test_a_cache_that_can_not_be_looked_into_has_nothing():
    vllms = SimpleNamespace(is_encoder_decoder=False, encoder_cache_manager=object())
    assert Encoders(vllms).missing(request(("a", 0, 100)), 0) == 50


def test_a_step_encodes_what_vllm_says():
    output = SimpleNamespace(scheduled_encoder_inputs={"r": [0, 2], "s": [0]})
    requests = {"r": request(("a", 0, 100), ("b", 100, 40), ("c", 200, 60)), "s": request(("d", 0, 20))}
    assert count_encoded(output, requests) == 50 + 30 + 10
