"""Delivered token ids are taken from those who have the gateway's private key, and from nobody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.bench.continuation.signer import Signer
from headrace_engine.contracts import ContractError, decode
from headrace_engine.contracts.resume_arguments import (
    RESUME_IDS,
    RESUME_TIMES,
    SIGNATURE,
    ResumeKey,
    Resumption,
    read_resumption,
)
from headrace_engine.contracts.resume_arguments import arguments as arguments_of

TOKENS = st.lists(st.integers(0, 2**31), min_size=1, max_size=50)
SERVICE = "llm/chat"


GATEWAY, ANOTHER, LONG = Signer(), Signer(), Signer(3000)
KEY = GATEWAY.key(SERVICE)
TIMES = (1_780_000_000.25, 1_780_000_001.5, 1_780_000_002.125)
MODULUS = int(KEY.modulus, 16)


def arguments(signer, service, tokens):
    return arguments_of(signer, service, Resumption(tuple(tokens), *TIMES))


def delivered_tokens(key, given):
    found = read_resumption(key, given)
    return () if found is None else found.token_ids


@pytest.mark.parametrize("signer", [GATEWAY, ANOTHER, LONG])
@given(tokens=TOKENS)
def test_what_was_signed_is_taken(signer, tokens):
    found = read_resumption(signer.key(SERVICE), {"more": 1, **arguments(signer, SERVICE, tokens)})
    assert found == Resumption(tuple(tokens), *TIMES)


def test_nothing_may_have_been_delivered():
    new = Resumption((), 1_780_000_000.0)
    assert read_resumption(KEY, arguments_of(GATEWAY, SERVICE, new)) == new


@pytest.mark.parametrize("odd", [None, [1, 2, 3], [1.5, 2, 3], "1,2,3", []])
def test_other_times_under_a_signature_are_not_taken(odd):
    assert read_resumption(KEY, {**arguments(GATEWAY, SERVICE, [1, 2]), RESUME_TIMES: odd}) is None


@given(TOKENS, TOKENS)
def test_other_tokens_under_a_signature_are_not(tokens, others):
    found = delivered_tokens(KEY, {**arguments(GATEWAY, SERVICE, tokens), RESUME_IDS: others})
    assert found == (tuple(tokens) if others == tokens else ())


def test_what_was_signed_for_another_service_is_not():
    assert delivered_tokens(KEY, arguments(GATEWAY, "llm/code", [1, 2])) == ()


def test_what_another_key_signed_is_not():
    assert delivered_tokens(KEY, arguments(ANOTHER, SERVICE, [1, 2])) == ()


@pytest.mark.parametrize(
    "odd",
    [None, "1,2", [1.0, 2], ["1", "2"], [True, 2], {"ids": [1, 2]}, 7, []],
)
def test_whatever_is_no_list_of_ids_is_not(odd):
    assert delivered_tokens(KEY, {**arguments(GATEWAY, SERVICE, [1, 2]), RESUME_IDS: odd}) == ()


def as_signature(number):
    return number.to_bytes(256).hex()


MADE = arguments(GATEWAY, SERVICE, [1, 2])
SIGNED = MADE[SIGNATURE]
WRONG = {
    "none": None,
    "empty": "",
    "no digits": "é",
    "number": 7,
    "list": ["x"],
    "zero": as_signature(0),
    "one": as_signature(1),
    "modulus": as_signature(MODULUS),
    "shorter": SIGNED[2:],
    "longer": "00" + SIGNED,
    "the same modulo the modulus": format(int(SIGNED, 16) + MODULUS, "0514x"),
    "a million digits": "f" * 1_000_000,
    "one bit": as_signature(int(SIGNED, 16) ^ 1),
}


@pytest.mark.parametrize("odd", WRONG.values(), ids=WRONG)
def test_nothing_is_taken_under_another_signature(odd):
    assert delivered_tokens(KEY, {**MADE, SIGNATURE: odd}) == ()
    assert delivered_tokens(KEY, MADE) == (1, 2)


@pytest.mark.parametrize(
    ("modulus", "complaint"), [("xyz", "invalid literal"), ("ff", "fewer than 2048 bits"), ("", "invalid")]
)
def test_what_is_no_key_is_refused(modulus, complaint):
    with pytest.raises(ContractError, match=complaint):
        decode(ResumeKey, {"service": SERVICE, "modulus": modulus})
