"""Searches for goodput ask for few runs and find what a sweep would."""

from functools import partial

import pytest

from e2e.bench.accelgen.cases import CODE
from e2e.bench.runs import comparison, search, tuning
from e2e.bench.runs.tuning import Tuning

TARGET = "ttft_tpot"


def steady(share):
    return {f"met_{TARGET}": share, "left_waiting": 0.0}


def test_a_search_asks_for_few_runs_and_finds_what_a_sweep_would():
    asked = []

    def measured(cases):
        asked.extend(cases)
        return {case: steady(1.07 - case.load) for case in cases}

    searches = {
        seed: search.goodput(CODE.loads, partial(CODE.case, seed=seed), comparison.stock, TARGET)
        for seed in (0, 1)
    }
    goodputs, made = search.run(searches, measured)
    assert [goodputs[seed].load for seed in (0, 1)] == pytest.approx([0.17, 0.17])
    assert len(asked) == len(made) <= 2 * 5
    swept = comparison.goodputs(
        measured(comparison.sweep(CODE, [comparison.stock])), CODE, TARGET, comparison.stock
    )
    assert swept[0].load == pytest.approx(goodputs[0].load)


def test_a_load_whose_queue_only_grows_is_not_held():
    def measured(cases):
        return {case: steady(0.95) | {"left_waiting": 0.05 * (case.load > 0.3)} for case in cases}

    at = partial(CODE.case, seed=0)
    goodputs, _ = search.run({0: search.goodput(CODE.loads, at, comparison.stock, TARGET)}, measured)
    assert 0.28 <= goodputs[0].load < 0.32


@pytest.mark.parametrize("order", [1, -1])
def test_the_best_of_several_kinds_is_found_whichever_comes_first(order):
    def measured(cases):
        return {case: steady(1 - case.load * 8192 / case.budget / 2) for case in cases}

    kinds = [tuning.tuned(comparison.stock, Tuning(budget)) for budget in (8192, 2048, 1024)][::order]
    at = partial(CODE.case, seed=0)
    found, _ = search.run({0: search.best(CODE.loads, at, kinds, TARGET)}, measured)
    goodput, winner = found[0]
    assert goodput.load == pytest.approx(0.2)
    assert winner is kinds[0 if order > 0 else -1]
