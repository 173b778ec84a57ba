"""How predictions of output lengths are measured."""

import pytest

from e2e.bench import prediction
from e2e.bench.prediction import Answered, Asked, page, replay, soak, summarize_answers, synthetic_text
from headrace_engine.prediction import Features, Quantile


def answers(*pairs, again=None):
    return [Answered(told, again, 20, real, 10.0) for told, real in pairs]


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch):
    monkeypatch.setattr(prediction, "WARM_UP", 0)


def test_figures_of_a_few_requests():
    """Predicted 100, so 115 are allocated."""
    figures = summarize_answers(answers((100, 100), (100, 115), (100, 230), (100, 23), again=150.0))
    assert figures["accuracy_percent"] == 75
    assert figures["near_percent"] == 50
    assert figures["over_percent"] == pytest.approx(100 * (15 / 115 + 92 / 115) / 4)
    assert figures["under_percent"] == pytest.approx(25)
    assert figures["under_total_percent"] == pytest.approx(25)
    assert (figures["over_share_percent"], figures["under_share_percent"]) == (25, 50)
    assert figures["calibration_50_percent"] == 50
    assert figures["outgrown_calibration_percent"] == 75
    assert figures["padded_under_share_percent"] == 25
    assert figures["mean_absolute_error"] == pytest.approx((0 + 15 + 130 + 77) / 4)
    assert figures["microseconds_per_request"] == 10


def test_a_length_is_learned_when_its_request_has_finished():
    """Each takes 1.3 s for its 10 tokens."""
    requests = [Asked(at / 10, Features(100, 1000), 10) for at in range(30)]
    told = [each.predicted for each in replay(Quantile(), requests)]
    first = told.index(10)
    assert set(told[:first]) == {256}
    assert set(told[first:]) == {10}
    assert requests[first].at == pytest.approx(1.3, abs=0.11)


def test_made_up_text_is_the_same_each_time():
    made = synthetic_text(20, seed=1)
    assert made == synthetic_text(20, seed=1) != synthetic_text(20, seed=2)
    for each in made:
        assert len(each.features.token_ids) == each.features.prompt_tokens


def test_a_soak_tells_what_it_used():
    figures = soak(50)
    assert figures["requests"] == 50
    assert figures["peak_mib"] > 0
    assert figures["mean_microseconds_per_request"] > 0


def test_the_page_has_a_row_for_each_workload():
    figures = {
        "code_accuracy_percent": 59.66,
        "code_near_percent": 1.0,
        "text_learned_accuracy_percent": 70.0,
    }
    text = page(figures | {"soak_requests": 200_000, "soak_growth_kib": 4.0})
    assert "| code | 59.7 | 1.0 |" in text
    assert "| text-learned | 70.0 |  |" in text
    assert "200,000 requests" in text
