"""A pool puts a service's engines elsewhere, and all else stays as the service's spec says."""

import pytest
from op_devices import member

from headrace_operator.api.engine_arguments import with_option
from headrace_operator.api.placement import PlacedService
from headrace_operator.decide.places import Place, place_of, put, put_as_planned, running_place
from headrace_operator.desired.inputs import inputs_hash

THERE = Place("claim", 2, 45, "123", 3)


def test_a_service_is_where_it_was_put():
    assert place_of(put(member("chat"), THERE)) == THERE


def test_a_service_that_is_put_where_it_is_has_no_other_pods():
    chat = member("chat")
    assert inputs_hash(put(chat, place_of(chat))) == inputs_hash(chat)


def test_a_service_without_any_share_has_none_again():
    plain = member("chat", None, False)
    assert inputs_hash(put(put(plain, THERE), place_of(plain))) == inputs_hash(plain)


def test_a_service_that_is_scaled_to_zero_stays_so():
    assert put(member("chat", replicas=0), THERE).replicas == 0


def test_a_plan_says_all_but_the_devices():
    placed = PlacedService(
        name="chat",
        replicas=3,
        tensor_parallel_size=2,
        gpu_memory_utilization_percent=45,
        kv_cache_memory_bytes=123,
    )
    assert place_of(put_as_planned(member("chat"), placed)) == THERE._replace(claim=None)
    assert put_as_planned(member("chat"), None) == member("chat")


def test_a_plan_leaves_memory_to_the_spec_where_no_gpu_is_shared():
    chat = member("chat")
    placed = PlacedService(name="chat", replicas=chat.replicas, tensor_parallel_size=1)
    assert inputs_hash(put_as_planned(chat, placed)) == inputs_hash(chat)


def test_nothing_runs_without_a_deployment_or_with_one_that_does_not_say_what_it_runs():
    assert running_place(member("chat"), None) is None
    assert running_place(member("chat"), {"metadata": {}, "spec": {"replicas": 1}}) is None


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ([], "1", ["--kv=1"]),
        (["--a=1", "--kv=2", "--b"], "1", ["--a=1", "--kv=1", "--b"]),
        (["--a=1", "--kv", "2", "--b", "3"], "1", ["--a=1", "--kv=1", "--b", "3"]),
        (["--kv=2", "--a", "--kv", "3"], "1", ["--kv=1", "--a"]),
        (["--kv", "1"], "1", ["--kv", "1"]),
        (["--a", "--kv", "1"], None, ["--a"]),
        (["--a"], None, ["--a"]),
    ],
)
def test_an_option_is_replaced_where_it_is(before, value, after):
    assert list(with_option(before, "kv", value)) == after
