"""Engines and the turn server over real sockets on loopback; what a neighbour without the token can do."""

import socket
from contextlib import suppress

import pytest
from ep_turns import TOKEN, serving

from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.turns import __main__ as main_module
from headrace_engine.turns import connection as connection_module
from headrace_engine.turns.connection import AGAIN_SECONDS, SILENCE_SECONDS, join_group
from headrace_engine.turns.messages import NONCE_BYTES, Kind, Message, pack, sign
from headrace_engine.turns.server import CONNECTIONS

PATIENCE = 20.0  # seconds that no answer takes


class Time:
    """A clock that only the test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def engine(group, priority=1.0, clock=None):
    """An engine that has joined, and what it asks with, as a list that the test changes."""
    asks = [priority]
    joined = (
        join_group(group, lambda: asks[0]) if clock is None else join_group(group, lambda: asks[0], clock)
    )
    return joined, asks


def test_an_engine_computes_when_it_is_its_turn_and_keeps_it_until_a_better_one_asks():
    with serving() as (_, group):
        one, _ = engine(group, 5.0)
        other, asks = engine(group, 7.0)
        assert one.may_step(PATIENCE)
        assert one.holds
        assert not other.may_step(0.05)
        assert one.may_step(), "it is the better one"
        asks[0] = 3.0
        assert not other.may_step(0.05)
        assert one.is_asked()
        assert not one.may_step(0.05)
        one.release(again=True)
        assert other.may_step(PATIENCE)
        assert not one.may_step(0.05)
        other.rest()
        assert one.may_step(PATIENCE)
        one.close()
        other.close()


def test_who_ends_leaves_its_turn_to_the_next():
    with serving() as (_, group):
        one, _ = engine(group)
        other, _ = engine(group)
        assert one.may_step(PATIENCE)
        assert not other.may_step(0.01)
        one.close()
        assert other.may_step(PATIENCE)
        assert other.holds
        other.close()


def test_without_a_server_everybody_computes_and_with_one_again_in_turns():
    with serving() as (_, group):
        clock = Time()
        one, _ = engine(group, clock=clock)
        assert one.may_step(PATIENCE)
        assert not one.alone
    assert one.may_step()
    assert one.alone
    assert one.may_step()
    with serving(group.port) as (turns, _):
        assert one.may_step(), "it does not try again at every step"
        assert one.alone
        clock.now += 2 * AGAIN_SECONDS
        assert one.may_step(PATIENCE)
        assert (one.alone, one.holds) == (False, True)
        assert turns.holder is not None
        one.close()


def test_a_server_that_is_silent_holds_up_nobody_for_long():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clock = Time()
        one, _ = engine(TurnGroup("127.0.0.1", listener.getsockname()[1], TOKEN), clock=clock)
        accepted, _ = listener.accept()
        accepted.sendall(bytes(NONCE_BYTES))
        assert not one.may_step()
        assert not one.alone
        clock.now += SILENCE_SECONDS + 0.1
        assert one.may_step(0.0)
        assert one.alone
        accepted.close()


def test_an_engine_that_rested_for_long_is_not_silent_when_it_wakes():
    with serving() as (_, group):
        clock = Time()
        one, _ = engine(group, clock=clock)
        assert one.may_step(PATIENCE)
        one.rest()
        clock.now += 3600
        assert one.may_step(PATIENCE)
        assert not one.alone
        one.close()


def talk(group, *, token=TOKEN):
    """A connection that has signed with `token`."""
    connection = socket.create_connection((group.host, group.port), timeout=PATIENCE)
    nonce = connection.recv(NONCE_BYTES, socket.MSG_WAITALL)
    connection.sendall(sign(bytes.fromhex(token), nonce))
    return connection


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 24,
        pack(Message(Kind.GRANT)),
        pack(Message(Kind.WANT, priority=float("nan"))),
        pack(Message(Kind.WANT, priority=float("-inf"))),
    ],
)
def test_who_says_what_no_engine_says_is_sent_away_and_the_others_go_on(said):
    with serving() as (_, group):
        one, _ = engine(group)
        assert one.may_step(PATIENCE)
        with talk(group) as connection:
            connection.sendall(said)
            assert connection.recv(1) == b""
        assert one.may_step()
        assert one.holds
        one.close()


def test_who_has_not_the_token_gets_no_turn(caplog):
    with serving() as (turns, group):
        with talk(group, token="ab" * 32) as connection, suppress(ConnectionResetError):  # or at once
            connection.sendall(pack(Message(Kind.WANT, priority=0.0, want=1)))
            assert connection.recv(1) == b""
        assert turns.concerned == set()
    assert "has not the token" in caplog.text


def test_more_connections_than_a_group_has_are_refused():
    with serving() as (_, group):
        open_ones = [socket.create_connection((group.host, group.port)) for _ in range(CONNECTIONS)]
        for each in open_ones:
            assert each.recv(NONCE_BYTES, socket.MSG_WAITALL)
        with socket.create_connection((group.host, group.port)) as refused:
            assert refused.recv(1) == b""
        for each in open_ones:
            each.close()


def test_messages_that_come_in_pieces_are_put_together():
    with serving() as (_, group), talk(group) as connection:
        for byte in pack(Message(Kind.WANT, priority=1.0, want=3)):
            connection.sendall(bytes([byte]))
        [grant] = connection_module.unpack(connection.recv(24, socket.MSG_WAITALL), to_server=False)
        assert (grant.kind, grant.want) == (Kind.GRANT, 3)


def test_a_check_tells_a_server_from_one_that_hangs_and_from_none(monkeypatch):
    monkeypatch.setattr(main_module, "CHECK_SECONDS", 0.1)
    with serving() as (turns, group):
        assert main_module.answers(group.port)
        assert turns.concerned == set()
    assert not main_module.answers(group.port)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not main_module.answers(silent.getsockname()[1])
