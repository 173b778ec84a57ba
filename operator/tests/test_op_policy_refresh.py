"""Refreshes of a pod's documents: for engines that have others, repeated until they confirm."""

from dataclasses import replace

import pytest
from op_world import body, hash_of, observed, pod, report

from headrace_operator import names
from headrace_operator.api import Key
from headrace_operator.decide.documents import Documents
from headrace_operator.decide.policy_refresh import PolicyRefreshes

KEY = Key("llm", "chat")


def planned(refreshes, pods, reports, now=0.0, turn_group=""):
    seen = observed(body(), pods, reports)
    due = refreshes.plan_refreshes(KEY, seen, Documents(hash_of(body()), turn_group), now)
    return [(refresh.pod.name, refresh.value) for refresh in due]


def refreshed_pod(name, value):
    raw = pod(name)
    raw["metadata"]["annotations"] = {names.POLICY_REFRESH: value}
    return raw


def test_pods_with_another_policy_are_refreshed_and_others_are_not():
    ours = hash_of(body())
    pods = [pod("old"), pod("new"), pod("silent"), pod("stock"), pod("refusing"), pod("loading", ready=False)]
    reports = {
        "old": report("0" * 16),
        "new": report(ours),
        "stock": report("", state="Stock"),
        "refusing": report("0" * 16, rejected_hash=ours),
        "loading": report("0" * 16),
    }
    assert planned(PolicyRefreshes(), pods, reports) == [("old", ours)]


def test_pods_that_take_turns_with_others_are_refreshed_unless_they_are_too_old_to_say():
    ours, pods = hash_of(body()), [pod("member"), pod("alone"), pod("older")]
    reports = {"member": report(ours, turn_group="g"), "alone": report(ours), "older": report(ours)}
    reports["older"] = replace(reports["older"], status=replace(reports["older"].status, turn_group=None))
    assert planned(PolicyRefreshes(), pods, reports, turn_group="g") == [("alone", f"{ours}.g")]
    assert planned(PolicyRefreshes(), pods, reports) == [("member", ours)]


def test_a_refresh_with_a_group_repeats_too():
    ours = hash_of(body())
    pods, reports = [refreshed_pod("a", f"{ours}.g-1")], {"a": report(ours)}
    assert planned(PolicyRefreshes(), pods, reports, turn_group="g") == [("a", f"{ours}.g-2")]


@pytest.mark.parametrize(
    ("suffix", "wait", "following"),
    [("", 0.4, "-1"), ("-1", 0.8, "-2"), ("-9", 5.0, "-10"), ("-20", 30.0, "-21")],
)
def test_a_refresh_repeats_with_a_nonce_after_a_growing_wait(suffix, wait, following):
    ours = hash_of(body())
    pods, reports = [refreshed_pod("a", ours + suffix)], {"a": report("0" * 16)}
    seen, refreshes = observed(body(), pods, reports), PolicyRefreshes()
    refreshes.record_refreshes(KEY, seen.pods, seen, 100.0)
    assert planned(refreshes, pods, reports, 100.0 + wait - 0.01) == []
    assert planned(refreshes, pods, reports, 100.0 + wait) == [("a", ours + following)]
    assert refreshes.seconds_until_next(KEY, seen, Documents(ours), 100.0) == pytest.approx(wait)


def test_a_restarted_operator_refreshes_at_once():
    ours = hash_of(body())
    pods, reports = [refreshed_pod("a", ours)], {"a": report("0" * 16)}
    assert planned(PolicyRefreshes(), pods, reports) == [("a", f"{ours}-1")]


def test_no_refresh_is_due_when_all_have_answered():
    ours = hash_of(body())
    seen = observed(body(), [pod("a")], {"a": report(ours)})
    assert PolicyRefreshes().seconds_until_next(KEY, seen, Documents(ours), 0.0) is None


def test_pods_that_are_gone_are_forgotten():
    ours = hash_of(body())
    pods, reports = [refreshed_pod("a", ours)], {"a": report("0" * 16)}
    seen, refreshes = observed(body(), pods, reports), PolicyRefreshes()
    refreshes.record_refreshes(KEY, seen.pods, seen, 100.0)
    refreshes.record_refreshes(KEY, (), observed(body(), [], {}), 100.0)
    assert planned(refreshes, pods, reports, 100.0) == [("a", f"{ours}-1")]
