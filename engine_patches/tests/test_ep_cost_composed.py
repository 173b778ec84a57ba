"""The composed form: a step is the sum of its operators, and what holds for steps that grow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.cost import catalog
from headrace_engine.cost.composed import Axes, Composed, tiled_tokens
from headrace_engine.cost.model import Batch, Profile, chunk_work

AXES = Axes([1, 1000, 20_000], [1, 1000], [1, 100, 10_000], [1, 1000], [16, 100_000])
COST = Composed(
    Profile("a model", "a GPU", 1, "an engine", "made up for a test"),
    AXES,
    dense=[10.0, 10.0, 390.0],
    head=[1.0, 1000.0],
    prompt=[0.5, 0.5, 99.5],
    decode=[[0.25, 10.0], [250.0, 10_000.0]],
)
H100 = catalog.find_cost_model("llama-3-8b", "H100")


def test_decodes_take_dense_operators_head_and_attention():
    batch = Batch(decodes=10, decode_context=10 * 16)
    attention = COST.attention_seconds(batch)
    assert attention == pytest.approx(2.5)
    assert COST.step_seconds(batch) == pytest.approx(10.0 + 10.0 + attention)


def test_a_chunk_takes_its_part_of_the_square_of_the_whole_prompt():
    chunk = Batch(1000, chunk_work(1000, 3000), prefills=1)
    whole = 0.5 + 3900 * 0.01
    assert COST.attention_seconds(chunk) == pytest.approx(whole * (1 - 0.75**2))
    small = Batch(10, chunk_work(10, 9000), prefills=1)
    decode = 0.25 + 9.75 * (9010 - 16) / (100_000 - 16)
    assert COST.attention_seconds(small) == pytest.approx(decode), "no less than a decode behind as much"


def test_what_the_kernel_takes_for_nothing_counts_once():
    one = COST.attention_seconds(Batch(50, chunk_work(50, 0), prefills=1))
    assert COST.attention_seconds(Batch(100, 2 * chunk_work(50, 0), prefills=2)) == one == 0.5
    decodes = Batch(decodes=10, decode_context=160)
    both = Batch(50, chunk_work(50, 0), 10, 160, 1)
    assert COST.attention_seconds(both) == pytest.approx(COST.attention_seconds(decodes) + 0.25)


@pytest.mark.parametrize(("prefill", "decodes", "tiled"), [(100, 28, 128), (100, 48, 158), (2000, 0, 2160)])
def test_a_step_with_prefill_leaves_half_a_tile_empty(prefill, decodes, tiled):
    assert tiled_tokens(Batch(prefill, decodes=decodes)) == tiled
    assert tiled_tokens(Batch(decodes=decodes)) == decodes


def test_few_tokens_are_nearly_free_and_many_are_not():
    sizes = (8, 100, 4096, 8192)
    few, more, many, double = (H100.step_seconds(Batch(size, prefills=1)) for size in sizes)
    assert more - few < 0.2 * few
    assert double / many == pytest.approx(2, rel=0.15)


@given(st.integers(0, 16_000), st.integers(0, 8000), st.integers(0, 500), st.integers(1, 5000))
def test_more_of_anything_takes_no_less(chunk, context, decodes, length):
    seconds = H100.step_seconds(Batch(chunk, chunk_work(chunk, context), decodes, decodes * length, 1))
    more = (
        Batch(chunk, chunk_work(chunk, context), decodes + 1, (decodes + 1) * length, 1),
        Batch(chunk, chunk_work(chunk, context), decodes, decodes * (length + 1), 1),
    )
    assert all(H100.step_seconds(batch) >= seconds * (1 - 1e-9) for batch in more)
