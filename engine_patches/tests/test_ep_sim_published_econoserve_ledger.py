"""The paper's books by example: what is lent, to whom it returns, and when a group's room is free again."""

import dataclasses

import pytest
from ep_engine_view import LIMITS, FakeRequest

from headrace_engine.sim.published_econoserve.ledger import Group, Ledger

SMALL = dataclasses.replace(LIMITS, total_blocks=100)


@pytest.fixture
def ledger():
    return Ledger(SMALL, 10)


def prompt(ledger, tokens):
    return ledger.start_prompt(FakeRequest("r", 0.0, tokens))


def grow(task, tokens):
    task.request.num_tokens += tokens
    task.request.num_output_tokens += tokens


def test_a_prompt_is_on_the_reserve_and_its_output_on_main(ledger):
    task = prompt(ledger, 32)
    assert (ledger.free, ledger.reserve) == (90, 8)
    ledger.allot(task, 64, None)
    assert (ledger.free, ledger.reserve) == (84, 10)
    ledger.close(task.request)
    assert (ledger.free, ledger.reserve) == (90, 10)


def test_a_host_lends_half_a_quarter_and_so_on_of_its_output(ledger):
    host = prompt(ledger, 16)
    ledger.allot(host, 64, None)
    assert list(ledger.lent_by(host, 1)) == [(32, 32), (16, 16), (8, 8), (4, 4), (2, 2), (1, 1)]
    assert [lent for lent, _ in ledger.lent_by(host, 16)] == [32, 16]
    grow(host, 10)  # what it lends from its first tokens is gone, and time is short for the rest
    assert list(ledger.lent_by(host, 8)) == [(32, 22), (16, 6)]
    guest = prompt(ledger, 16)
    ledger.lodge(guest, 20, host, 32)
    assert list(ledger.lent_by(host, 8)) == [(16, 6)]
    assert [lent for lent, _ in ledger.lent_by(guest, 8)] == [16, 8]  # hosts in turn


def test_a_guest_takes_its_prompt_only_and_its_room_can_be_lent_again(ledger):
    host, guest = prompt(ledger, 16), prompt(ledger, 16)
    ledger.allot(host, 64, None)
    free = ledger.free
    ledger.lodge(guest, 20, host, 32)
    assert (ledger.free, ledger.hosted) == (free - 1, 1)
    ledger.close(guest.request)
    assert (ledger.free, ledger.hosted) == (free, 0)
    assert next(iter(ledger.lent_by(host, 32))) == (32, 32)


def test_a_guest_stays_for_itself_when_its_host_ends_early(ledger):
    host, guest = prompt(ledger, 16), prompt(ledger, 16)
    ledger.allot(host, 64, None)
    ledger.lodge(guest, 20, host, 32)
    ledger.close(host.request)
    assert (ledger.free, guest.host, ledger.hosted) == (90 - 3, None, 0)
    ledger.close(guest.request)
    assert ledger.free == 90


def test_an_outgrown_task_takes_from_the_reserve_until_that_is_used_up(ledger):
    task = prompt(ledger, 16)
    ledger.allot(task, 16, None)
    grow(task, 16)
    for taken in range(1, 11):
        assert ledger.extend(task, task.limit + 1)
        assert (ledger.reserve, task.limit) == (10 - taken, 32 + 16 * taken)
    assert not ledger.extend(task, task.limit + 1)
    ledger.close(task.request)
    assert (ledger.free, ledger.reserve) == (90, 10)


def test_what_members_leave_behind_is_free_when_the_last_has_ended(ledger):
    group, members = Group(), [prompt(ledger, 16) for _ in range(3)]
    for member in members:
        ledger.allot(member, 48, group)
    assert ledger.free == 90 - 12
    ledger.close(members[0].request)
    assert ledger.free == 90 - 12
    ledger.suspend(members[1])  # outgrown: it waits with its KV, and is no member any more
    assert ledger.free == 90 - 12
    ledger.close(members[2].request)
    assert ledger.free == 90 - 4
