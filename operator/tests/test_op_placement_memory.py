"""Engines of a group divide the memory of its GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_placement import SIZES, nodes, service

from headrace_operator.placement.memory import divide_kv
from headrace_operator.placement.problem import Group

NODES = nodes()


def test_who_holds_more_kv_gets_more():
    [few, many] = divide_kv(Group(1, (0, 1)), [service(output=50), service(output=500)], NODES)
    assert 4096 < few < many / 5


def test_one_alone_has_all_that_is_left():
    [alone] = divide_kv(Group(1, (0,)), [service()], NODES)
    [shared, _] = divide_kv(Group(1, (0, 1)), [service(), service()], NODES)
    assert alone > 2 * shared  # the other's weights are gone, too


@pytest.mark.parametrize(
    ("models", "gpus"),
    [(["llama-3-70b"], 1), (["qwen3-32b", "qwen3-32b"], 1), (["llama-3-70b", "qwen3-32b"], 2)],
)
def test_what_does_not_fit_has_none(models, gpus):
    group = Group(gpus, tuple(range(len(models))))
    assert divide_kv(group, [service(model=model) for model in models], NODES) is None


def test_a_size_without_cost_model_does_not_fit():
    assert divide_kv(Group(4, (0,)), [service()], NODES) is None


@given(st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=4), st.sampled_from([1, 2]))
def test_what_is_given_fits_and_is_enough_for_the_longest_request(models, gpus):
    services = [service(model=model, output=100 * (place + 1)) for place, model in enumerate(models)]
    tokens = divide_kv(Group(gpus, tuple(range(len(models)))), services, NODES)
    if tokens is not None:
        taken = sum(
            each.weight_bytes + each.kv_bytes_per_token * kv
            for each, kv in zip(services, tokens, strict=True)
        )
        assert taken + len(models) * gpus * NODES.reserved_bytes <= gpus * NODES.usable_bytes
        assert min(tokens) >= 4096


def test_who_is_asked_nothing_gets_what_its_longest_request_needs_or_half_of_all():
    idle = service(requests=0)
    [busy, none] = divide_kv(Group(1, (0, 1)), [service(), idle], NODES)
    assert (busy > none, none) == (True, 4096)
    [one, other] = divide_kv(Group(1, (0, 1)), [idle, idle], NODES)
    assert one == other > 4096
