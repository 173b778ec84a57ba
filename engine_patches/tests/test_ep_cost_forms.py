"""The closed forms: known values, what each term does, and what holds for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.cost import catalog
from headrace_engine.cost.forms import Linear, PhaseLine, TwoPhase
from headrace_engine.cost.model import Batch, Profile, chunk_work, scale_cost, unloaded_seconds, vary_cost

ANY = Profile("a model", "a GPU", 1, "an engine", "made up for a test")
LINEAR = Linear(ANY, fixed=0.01, per_prefill=1e-4, per_work=1e-8, per_decode=2e-4, per_context=1e-6)
TWO_PHASE = TwoPhase(
    ANY,
    PhaseLine(0.022, 1e-4, 8e-9),
    PhaseLine(0.023, 6e-5, 6e-7),
    PhaseLine(0.02, 1.2e-4, 5e-7),
    large_from=95,
)
FORMS = [LINEAR, TWO_PHASE]
DECODES = Batch(decodes=32, decode_context=32_000)
CHUNK = Batch(512, chunk_work(512, 100), prefills=1)
MIXED = Batch(512, chunk_work(512, 100), 32, 32_000, 1)


def test_a_linear_step_is_the_sum_of_its_parts():
    assert LINEAR.step_seconds(MIXED) == pytest.approx(
        0.01 + 512e-4 + 512 * 356 * 1e-8 + 32 * 2e-4 + 32_000 * 1e-6
    )


def test_distserve_changes_its_line_with_the_size_of_the_batch():
    before = TWO_PHASE.step_seconds(Batch(decodes=94, decode_context=94_000))
    after = TWO_PHASE.step_seconds(Batch(decodes=95, decode_context=95_000))
    assert before == pytest.approx(0.023 + 94 * 6e-5 + 94_000 * 6e-7)
    assert after == pytest.approx(0.02 + 95 * 1.2e-4 + 95_000 * 5e-7)


def test_a_mixed_step_reads_the_weights_once():
    apart = TWO_PHASE.step_seconds(CHUNK) + TWO_PHASE.step_seconds(DECODES)
    assert TWO_PHASE.step_seconds(MIXED) == pytest.approx(apart - 0.022)


@pytest.mark.parametrize("cost", FORMS)
def test_the_mixed_factor_makes_attention_dearer_in_mixed_steps_alone(cost):
    doubted = vary_cost(cost, mixed_attention_factor=1.8)
    assert doubted.step_seconds(DECODES) == cost.step_seconds(DECODES)
    assert doubted.step_seconds(CHUNK) == cost.step_seconds(CHUNK)
    more = 0.8 * cost.attention_seconds(MIXED)
    assert doubted.step_seconds(MIXED) == pytest.approx(cost.step_seconds(MIXED) + more)
    assert doubted.attention_seconds(MIXED) == pytest.approx(1.8 * cost.attention_seconds(MIXED))


@pytest.mark.parametrize("cost", FORMS)
def test_overhead_is_added_to_each_step_and_told(cost):
    doubted = vary_cost(cost, overhead_seconds=0.003)
    for batch in (DECODES, CHUNK, MIXED):
        assert doubted.step_seconds(batch) == pytest.approx(cost.step_seconds(batch) + 0.003)
    assert "+3 ms" in doubted.profile.source
    assert vary_cost(cost) is cost


@pytest.mark.parametrize("doubts", [{"mixed_attention_factor": 0.5}, {"overhead_seconds": -1}])
def test_doubts_that_make_it_faster_are_refused(doubts):
    with pytest.raises(ValueError, match="or more"):
        vary_cost(LINEAR, **doubts)


batches = st.builds(
    Batch,
    st.integers(0, 8192),
    st.floats(0, 1e9),
    st.integers(0, 256),
    st.integers(0, 10**6),
    st.integers(0, 9),
)


@given(
    batches,
    st.sampled_from([*FORMS, *(catalog.find_cost_model("llama-3-8b", gpu) for gpu in ("A100", "H100"))]),
)
def test_attention_is_a_part_of_the_step(batch, cost):
    assert 0 <= cost.attention_seconds(batch) <= cost.step_seconds(batch)


@given(st.integers(1, 5000), st.integers(1, 2000), st.sampled_from([64, 512, 2048]))
def test_alone_a_request_takes_as_long_as_its_steps(prompt, output, budget):
    seconds, context = 0.0, 0
    while context < prompt:
        chunk = min(budget, prompt - context)
        seconds += LINEAR.step_seconds(Batch(chunk, chunk_work(chunk, context), prefills=1))
        context += chunk
    for written in range(output - 1):
        seconds += LINEAR.step_seconds(Batch(decodes=1, decode_context=prompt + written))
    assert unloaded_seconds(LINEAR, prompt, output, budget) == pytest.approx(seconds)


def test_a_scaled_cost_model_takes_so_many_times_as_long():
    batch = Batch(100, chunk_work(100, 0), decodes=3, decode_context=300, prefills=1)
    slower = scale_cost(LINEAR, 1.25)
    assert slower.step_seconds(batch) == pytest.approx(1.25 * LINEAR.step_seconds(batch))
    assert slower.attention_seconds(batch) == pytest.approx(1.25 * LINEAR.attention_seconds(batch))
    assert scale_cost(LINEAR, 1.0) is LINEAR
    with pytest.raises(ValueError, match="above 0"):
        scale_cost(LINEAR, 0.0)
