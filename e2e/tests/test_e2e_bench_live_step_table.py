"""How long steps take by their size: what is fitted, and what does not disturb it."""

import itertools

import pytest

from e2e.bench.live import step_table
from e2e.bench.live.step_table import StepTable
from headrace_engine.control.records import StepSample
from headrace_engine.cost.model import Batch

BUDGETS = (32, 64, 128, 192, 256, 512, 2048)
SIZES = (1, 2, 4, 8, 16, *BUDGETS)
TABLE = StepTable(
    sizes=SIZES,
    seconds=(0.016, 0.017, 0.0175, 0.018, 0.021, 0.026, 0.033, 0.049, 0.047, 0.072, 0.135, 0.55),
    per_work=5e-8,
    per_context=1e-6,
)


def step(prefill, work, decodes, context, factor=1.0):
    seconds = TABLE.step_seconds(Batch(prefill, work, decodes, context))
    return StepSample(prefill, work, decodes, context, factor * seconds)


def steps_of_all_sizes():
    for number, (size, times) in enumerate(itertools.product(SIZES, range(6))):
        tokens = size + times // 3 * (size // 8)
        decodes = min(tokens, 12)
        yield step(tokens - decodes, 40.0 * number, decodes, decodes * (40 + 30 * (number % 7)))


def test_a_table_is_found_from_steps_that_it_made():
    found = step_table.fit(list(steps_of_all_sizes()), BUDGETS)
    assert found.sizes == SIZES
    assert found.seconds == pytest.approx(TABLE.seconds, rel=1e-6)
    assert [found.per_work, found.per_context] == pytest.approx([TABLE.per_work, TABLE.per_context], rel=1e-6)


def test_a_step_in_which_the_machine_stalled_changes_little():
    made = list(steps_of_all_sizes())
    made[17] = made[17]._replace(seconds=20 * made[17].seconds)
    found = step_table.fit(made, BUDGETS)
    for each in steps_of_all_sizes():
        batch = Batch(each.prefill_tokens, each.prefill_work, each.decodes, each.decode_context)
        assert found.step_seconds(batch) == pytest.approx(each.seconds, rel=0.1)


def test_sizes_that_no_step_had_are_between_those_that_some_had():
    made = [each for each in steps_of_all_sizes() if not 100 < each.prefill_tokens + each.decodes < 240]
    found = step_table.fit(made, BUDGETS)
    assert set(found.sizes) == set(SIZES) - {128, 192}
    assert 0.033 < found.step_seconds(Batch(160)) < 0.072


def test_a_size_counts_only_the_steps_near_it():
    few = [step(2020, 0, 28, 100), step(2036, 0, 12, 100)]
    made = [each for each in steps_of_all_sizes() if each.prefill_tokens + each.decodes < 900]
    found = step_table.fit(made + few, BUDGETS)
    assert found.sizes == SIZES[:-1]


@pytest.mark.parametrize(
    ("budgets", "sizes"),
    [((32, 96), [1, 2, 4, 8, 16, 32, 96]), ((48,), [1, 2, 4, 8, 16, 32, 48]), ((1, 2), [1, 2])],
)
def test_sizes_below_the_least_budget_are_powers_of_two(budgets, sizes):
    assert step_table.possible_sizes(budgets) == sizes


def test_nothing_is_negative():
    made = [step(0, 0, count, 10 * count)._replace(seconds=0.05 - 1e-4 * count) for count in range(1, 60)]
    found = step_table.fit(made, BUDGETS)
    assert min(*found.seconds, found.per_work, found.per_context) >= 0


def test_steps_of_one_size_tell_too_little():
    with pytest.raises(ValueError, match="fewer than two sizes"):
        step_table.fit([step(0, 0, 1, 100)] * 3, BUDGETS)


@pytest.mark.parametrize(("tokens", "seconds"), [(1, 0.016), (192, 0.047), (160, 0.048), (4096, 1.103333)])
def test_lines_go_from_size_to_size_and_beyond_the_largest(tokens, seconds):
    assert TABLE.step_seconds(Batch(tokens)) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "batch", [Batch(decodes=3, decode_context=500), Batch(700, 9e5, 20, 4000), Batch(5000)]
)
def test_each_step_of_a_slower_server_takes_so_many_times_as_long(batch):
    assert TABLE.slower(1.2).step_seconds(batch) == pytest.approx(1.2 * TABLE.step_seconds(batch))


def test_slowness_is_the_time_of_all_steps_over_the_tables():
    steps = [step(64, 0, 0, 0, factor=1.5), step(0, 0, 2, 90, factor=1.5)]
    assert step_table.slowness(TABLE, steps) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="no steps"):
        step_table.slowness(TABLE, [])
