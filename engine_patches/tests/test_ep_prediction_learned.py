"""`Learned`: the network answers only while it is better than `Quantile` on requests that it never saw."""

import random
import threading

import pytest
from ep_prediction import asked, told
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts import Prediction
from headrace_engine.prediction import Quantile, build_predictor
from headrace_engine.prediction.length_scale import length_step, step_start

pytestmark = pytest.mark.vllm  # imports torch
torch = pytest.importorskip("torch")
learned = pytest.importorskip("headrace_engine.prediction.learned")
network = pytest.importorskip("headrace_engine.prediction.network")
Learned = learned.Learned
SHORT, LONG = 7, 11  # token ids that tell


@given(st.integers(0, 2**40), st.integers(1, 5))
def test_a_step_begins_with_its_first_length(tokens, fineness):
    step = length_step(tokens, fineness)
    assert step_start(step, fineness) <= tokens < step_start(step + 1, fineness)


def requests(count, seed=1, words=(SHORT, LONG)):
    """One of two words somewhere in the prompt tells whether 20 or 600 tokens follow; nothing else does."""
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.randrange(2)
        ids = [chance.randrange(100, 1000) for _ in range(20)]
        ids[chance.randrange(20)] = words[kind]
        yield asked(token_ids=ids), (20, 600)[kind] + chance.randrange(10)


def trained(count=1200, **more):
    predictor = Learned(Quantile())
    for features, length in requests(count, **more):
        predictor.learn(features, length)
        predictor.work(10)
    return predictor


@pytest.fixture(scope="module", autouse=True)
def small_network():
    """Of a thousand rows, which is as many as there are words here."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "TOKENS", 1 << 10)
        patch.setattr(network, "CATEGORIES", 1 << 8)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def expert(small_network):
    return trained()


def mean_error(predictor, **more):
    return sum(abs(predictor.predict(f) - n) for f, n in requests(200, seed=9, **more)) / 200


def test_it_learns_what_the_prompt_tells(expert):
    assert expert.trusted
    assert expert.validation[0] < expert.validation[1] / 2
    assert mean_error(expert) < mean_error(expert._quantile) / 2


def test_a_request_under_way_is_predicted_from_what_is_left(expert):
    features = asked(token_ids=[SHORT] * 20)
    assert expert.predict(features) < 40
    assert 300 < expert.repredict(features, 300) < 700
    assert expert.repredict(asked(limit=310), 300) <= 310
    assert expert.repredict(asked(limit=10**6, token_ids=[SHORT]), 50_000) == 100_000


def test_the_same_history_makes_the_same_predictions():
    first, second = trained(300), trained(300)
    for features, _ in requests(20, seed=3):
        assert first._network.shares([network.see_request(features, 1)]) == second._network.shares(
            [network.see_request(features, 1)]
        )


def test_until_it_is_validated_quantiles_answer():
    predictor = trained(200)
    assert not predictor.trusted
    for features, _ in requests(20, seed=3):
        assert predictor.predict(features) == predictor._quantile.predict(features)
        assert predictor.repredict(features, 30) == predictor._quantile.repredict(features, 30)


def test_it_is_not_trusted_where_there_is_nothing_to_learn():
    chance, predictor = random.Random(4), Learned(Quantile())
    for _ in range(800):
        ids = [chance.randrange(100, 1000) for _ in range(5)]
        predictor.learn(asked(token_ids=ids), chance.randrange(100, 200))
        predictor.work(10)
    assert predictor.validation is not None
    assert not predictor.trusted


def test_one_that_got_worse_is_dropped(monkeypatch):
    """The words change their meaning: on what came since, the network is wrong and quantiles are not."""
    monkeypatch.setattr(learned, "VALIDATED_ON", 100)
    predictor = trained()
    assert predictor.trusted
    for features, length in requests(150 * learned.HELD_BACK, seed=5, words=(LONG, SHORT)):
        predictor._take(learned.Example(network.see_request(features, 100), length, 310.0))
    predictor._validate()
    assert not predictor.trusted


@pytest.mark.parametrize(("prompt", "limit", "ids"), [(0, 0, None), (0, 1, []), (10**12, 10**12, [10**9])])
def test_any_request_will_do(expert, prompt, limit, ids):
    features = asked(prompt, limit, prefix=-(2**70), token_ids=ids)
    assert 1 <= expert.predict(features) <= max(limit, 1)
    for so_far in (0, 1, 10**12):
        assert min(so_far + 1, max(limit, 1)) <= expert.repredict(features, so_far) <= max(limit, 1)
    expert.learn(features, 10**12)
    expert.learn(features, 0)
    expert._due = 2.0
    assert expert.work(2) == 2


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(learned, "REMEMBERED", 50)
    predictor = Learned(Quantile())
    for features, length in requests(500):
        predictor.learn(features, length)
        predictor.work(0)
    assert len(predictor._examples) == 50
    assert len(predictor._held_back) <= learned.VALIDATED_ON
    assert predictor._due <= learned.PASSES * 50 / learned.BATCH
    sight = network.see_request(asked(token_ids=range(10**5)), 1)
    assert len(sight.tokens) == 1 + network.HEAD + network.TAIL


def test_the_oldest_examples_make_room(monkeypatch):
    monkeypatch.setattr(learned, "REMEMBERED", 6 * learned.HELD_BACK)
    predictor = Learned(Quantile())
    for number in range(500):
        predictor.learn(asked(token_ids=[1]), number)
        predictor.work(0)
    assert min(example.output_tokens for example in predictor._examples) > 500 - 8 * learned.HELD_BACK


def test_no_more_is_trained_than_is_new():
    predictor = trained(400)
    predictor.work(10**6)
    assert predictor.work(10) == 0
    assert predictor._steps == pytest.approx(400 * 7 / 8 * learned.PASSES / learned.BATCH, abs=2)


def test_the_thread_trains_and_stops_without_taking_the_cores_of_others():
    torch.set_num_threads(2)
    predictor = build_predictor(Prediction("Learned"))
    (worker,) = [thread for thread in threading.enumerate() if thread.name == "headrace-predictor"]
    told(predictor, [5] * 300)
    while not predictor.inner._steps:
        worker.join(0.01)
        assert worker.is_alive()
    assert torch.get_num_threads() == 2
    predictor.close()
    worker.join(30)
    assert not worker.is_alive()


def test_a_failure_leaves_quantiles(monkeypatch, expert):
    def fail(*_):
        raise RuntimeError("as if")

    monkeypatch.setattr(network.Network, "train", fail)
    predictor = Learned(Quantile())
    told(predictor, [100] * 300)
    predictor._trusted = expert._trusted
    worker = threading.Thread(target=predictor._run)  # which gets the lowest priority, for good
    worker.start()
    worker.join(30)
    assert predictor.failed
    assert not predictor.trusted
    assert told(predictor, [100]).predict(asked()) == 100
    assert not predictor._told


def test_a_distribution_answers_any_quantile():
    flat = [min((step_start(step + 1, network.FINENESS)) / 100, 1.0) for step in range(network.STEPS)]
    assert network.quantile(flat, 0.5) == pytest.approx(50, abs=1)
    assert network.quantile(flat, 0.9) == pytest.approx(90, abs=1)
    assert network.quantile(flat, 0.5, 50) == pytest.approx(75, abs=2)
    assert network.quantile(flat, 0.5, 100) is None
