"""The invariants' shares: what is told of tests, and what other results add."""

import json
from types import SimpleNamespace

from e2e.bench.invariants import TARGETS, Tally, combined, elsewhere


def item(nodeid, doc):
    test = lambda: None  # noqa: E731
    test.__doc__ = doc
    return SimpleNamespace(nodeid=nodeid, obj=test)


def report(nodeid, passed=True, when="call", **told):
    return SimpleNamespace(nodeid=nodeid, passed=passed, when=when, user_properties=list(told.items()))


def test_only_tests_of_invariants_run_and_each_of_their_cases_counts():
    tally = Tally([])
    items = [
        item("a", "Invariant 4: x"),
        item("b", None),
        item("c", "Invariant 15: y"),
        item("d", "X."),
    ]
    tally.pytest_collection_modifyitems(items)
    assert [each.nodeid for each in items] == ["a", "c"]
    tally.pytest_runtest_logreport(report("a", cases=10, held=9))
    tally.pytest_runtest_logreport(report("c", when="setup"))
    tally.pytest_runtest_logreport(report("c", passed=False))
    assert tally.shares() == {4: 0.9, 15: 0.0}


def test_a_test_that_cannot_be_set_up_did_not_hold():
    tally = Tally([4])
    tally.pytest_collection_modifyitems([item("a", "Invariant 4: x")])
    tally.pytest_runtest_logreport(report("a", passed=False, when="setup"))
    assert tally.shares() == {4: 0.0}


def test_chosen_numbers_leave_the_others_out():
    items = [item("a", "Invariant 4: x"), item("c", "Invariant 15: y")]
    Tally([15]).pytest_collection_modifyitems(items)
    assert [each.nodeid for each in items] == ["c"]


def write(folder, name, **figures):
    (folder / f"{name}.json").write_text(json.dumps({"figures": figures}))


def test_figures_of_other_benchmarks_are_held_against_their_targets(tmp_path):
    assert elsewhere(tmp_path) == {}
    write(tmp_path, "operator", **TARGETS[13] | {"rss_mib": 300.0, "soak_growth_mib": 0.5})
    write(tmp_path, "outages", i07=1.0)
    assert elsewhere(tmp_path) == {13: 5 / 6, 14: 1.0, 7: 1.0}


def test_a_target_that_was_not_measured_is_not_held(tmp_path):
    write(tmp_path, "operator", rss_mib=100.0)
    assert elsewhere(tmp_path) == {13: 1 / 6}


def test_the_lower_of_two_shares_counts():
    assert combined({7: 1.0, 4: 0.5}, {7: 0.75, 13: 1.0}) == {"i04": 0.5, "i07": 0.75, "i13": 1.0}
