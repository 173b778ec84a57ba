"""Predictors: whatever they are told and asked, they answer with a possible length, and always the same."""

import ast
import random
import sys
from pathlib import Path

import pytest
from ep_prediction import asked, told
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace_engine.prediction as package
from headrace_engine.contracts import Prediction
from headrace_engine.prediction import Features, Hinted, Quantile, RunningMean, build_predictor

MAKERS = [RunningMean, Quantile, lambda: Hinted(Quantile(0.9))]
LENGTHS = st.one_of(st.integers(0, 3), st.integers(0, 5000), st.just(10**12))
FEATURES = st.builds(
    Features, LENGTHS, st.one_of(st.integers(0, 4), LENGTHS), st.integers(-5, 5), st.none() | LENGTHS
)


@pytest.mark.parametrize("make", MAKERS)
@settings(max_examples=40)
@given(history=st.lists(st.tuples(FEATURES, LENGTHS), max_size=30), features=FEATURES, so_far=LENGTHS)
def test_predictions_are_possible_lengths_and_the_same_each_time(make, history, features, so_far):
    first, second = make(), make()
    for predictor in (first, second):
        for past, length in history:
            predictor.predict(past)
            predictor.learn(past, length)
    expected = first.predict(features)
    assert expected == second.predict(features) == first.predict(features)
    assert 1 <= expected <= max(1, features.max_tokens)
    again = first.repredict(features, so_far)
    assert again == second.repredict(features, so_far)
    assert min(so_far + 1, max(1, features.max_tokens)) <= again <= max(1, features.max_tokens)


@pytest.mark.parametrize("make", MAKERS)
def test_before_anything_finished_there_is_a_guess(make):
    assert make().predict(asked()) == 256
    assert make().predict(asked(limit=20)) == 20
    assert make().repredict(asked(), 500) == 1000
    assert make().repredict(asked(limit=600), 500) == 600


def test_the_mean_follows_a_change():
    mean = told(RunningMean(), [100] * 3000)
    assert mean.predict(asked()) == pytest.approx(100)
    told(mean, [300] * 2500)
    assert mean.predict(asked()) == pytest.approx(300, rel=0.05)
    assert mean.repredict(asked(), 290) == mean.predict(asked())
    assert mean.repredict(asked(), 400) == 800


def test_a_hint_wins_until_it_is_outgrown():
    predictor = told(Hinted(Quantile()), range(1, 201))
    assert predictor.predict(asked(hint=7)) == 7
    assert predictor.predict(asked()) == 100
    assert predictor.repredict(asked(hint=7), 6) == 7
    assert predictor.repredict(asked(hint=7), 7) == predictor.repredict(asked(), 7) > 100
    assert predictor.predict(asked(limit=5, hint=7)) == 5


@pytest.mark.parametrize(("name", "inner"), [("None", RunningMean), ("Quantile", Quantile)])
def test_the_document_chooses(name, inner):
    predictor = build_predictor(Prediction(name, 80))
    assert type(predictor.inner) is inner
    predictor.close()


def test_the_documents_quantile_is_used():
    predictor = told(build_predictor(Prediction("Quantile", 90)), range(1, 101))
    assert predictor.predict(asked()) == 90


def test_only_the_standard_library_is_imported_at_the_top():
    for path in sorted(Path(package.__file__).parent.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names, "headrace_engine"}


@pytest.mark.parametrize("make", [RunningMean, Quantile])
def test_random_lengths_are_neither_over_nor_under_told(make):
    chance = random.Random(1)
    predictor, above = make(), 0
    for _ in range(2000):
        length = chance.randrange(1, 1000)
        features = asked(chance.randrange(1, 2000))
        above += length > predictor.predict(features)
        predictor.learn(features, length)
    assert above / 2000 == pytest.approx(0.5, abs=0.04)
