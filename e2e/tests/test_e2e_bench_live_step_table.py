"""How long steps take by their size: what is fitted, and what does not disturb it."""

import itertools

import pytest

from e2e.bench.live import step_table
from e2e.bench.live.step_table import SIZES, StepTable
from headrace_engine.control.records import StepSample
from headrace_engine.cost.model import Batch

TABLE = StepTable(
    fixed=0.02,
    per_token=(4e-4, 1e-4, 4e-4, 3e-4, 4e-4, 2e-4, 1e-4, 3e-4, 2.5e-4),
    per_work=5e-8,
    per_context=1e-6,
)


def step(prefill, work, decodes, context, factor=1.0):
    seconds = TABLE.step_seconds(Batch(prefill, work, decodes, context))
    return StepSample(prefill, work, decodes, context, factor * seconds)


def mixed_steps():
    sizes = (0, 5, 20, 45, 90, 170, 300, 700, 1500)
    for number, (prefill, decodes) in enumerate(itertools.product(sizes, (1, 3, 6, 12, 30))):
        context = decodes * (40 + 30 * (number % 7))
        yield step(prefill, prefill * (prefill / 2 + 50 * (number % 3)), decodes, context)


def test_a_table_is_found_from_steps_that_it_made():
    found = step_table.fit(list(mixed_steps()))
    assert found.per_token == pytest.approx(TABLE.per_token, rel=1e-6)
    assert [found.fixed, found.per_work, found.per_context] == pytest.approx(
        [TABLE.fixed, TABLE.per_work, TABLE.per_context], rel=1e-6
    )


def test_a_step_in_which_the_machine_stalled_changes_little():
    made = list(mixed_steps())
    made[17] = made[17]._replace(seconds=20 * made[17].seconds)
    found = step_table.fit(made)
    for each in mixed_steps():
        batch = Batch(each.prefill_tokens, each.prefill_work, each.decodes, each.decode_context)
        assert found.step_seconds(batch) == pytest.approx(each.seconds, rel=0.1)


def test_steps_of_one_size_are_told_by_their_mean():
    found = step_table.fit([step(0, 0, 8, 800, factor) for factor in (0.9, 1.0, 1.1)] * 5)
    assert found.step_seconds(Batch(decodes=8, decode_context=800)) == pytest.approx(
        TABLE.step_seconds(Batch(decodes=8, decode_context=800)), rel=0.02
    )


def test_no_slope_is_negative():
    made = [step(0, 0, count, 10 * count)._replace(seconds=0.05 - 1e-4 * count) for count in range(1, 60)]
    found = step_table.fit(made)
    assert min(found.fixed, *found.per_token, found.per_work, found.per_context) >= 0


@pytest.mark.parametrize("size", SIZES)
def test_lines_meet_at_each_size(size):
    below, at, above = (TABLE.step_seconds(Batch(tokens)) for tokens in (size - 1, size, size + 1))
    assert 0 <= at - below < 5e-4
    assert 0 <= above - at < 5e-4
