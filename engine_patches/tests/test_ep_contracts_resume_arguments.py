"""Delivered token ids are taken from those who have the key, and from nobody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts.resume_arguments import RESUME_IDS, SIGNATURE, arguments, delivered_tokens

TOKENS = st.lists(st.integers(0, 2**31), min_size=1, max_size=50)


@given(st.text(min_size=1), TOKENS)
def test_what_was_signed_is_taken(key, tokens):
    assert delivered_tokens(key, {"more": 1, **arguments(key, tokens)}) == tuple(tokens)


@given(TOKENS, TOKENS)
def test_other_tokens_under_a_signature_are_not(tokens, others):
    signed = arguments("key", tokens)
    found = delivered_tokens("key", {**signed, RESUME_IDS: others})
    assert found == (tuple(tokens) if others == tokens else ())


@pytest.mark.parametrize(
    "odd",
    [None, "1,2", [1.0, 2], ["1", "2"], [True, 2], {"ids": [1, 2]}, 7],
)
def test_whatever_is_no_list_of_ids_is_not(odd):
    assert delivered_tokens("key", {**arguments("key", [1, 2]), RESUME_IDS: odd}) == ()


@pytest.mark.parametrize("odd", [None, "", "é", 7, ["x"]])
def test_nothing_is_taken_under_another_signature(odd):
    assert delivered_tokens("key", {**arguments("key", [1, 2]), SIGNATURE: odd}) == ()


def test_nothing_is_taken_without_a_key():
    assert delivered_tokens("", arguments("", [1, 2])) == ()
    assert delivered_tokens("key", arguments("another", [1, 2])) == ()
    assert delivered_tokens("key", None) == ()
    assert delivered_tokens("key", {}) == ()
