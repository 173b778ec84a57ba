"""The fleet's event loop, with engines and gateways that are as simple as can be."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.sim.fleet import Failure, Network, simulate_fleet
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival

HOP = 0.001


class Counter:
    """An engine that serves one request after another, a second each."""

    def __init__(self, number):
        self.number, self.queue, self.next_event_at, self.dead = number, [], inf, False

    def add(self, arrival, now):
        assert not self.dead
        self.queue.append(Outcome(arrival, self.number))
        if self.next_event_at == inf:
            self.next_event_at = now + 1.0
        return self.queue[-1]

    def advance(self):
        done = self.queue.pop(0)
        done.first_token_at = done.last_token_at = done.finished_at = self.next_event_at
        self.next_event_at = self.next_event_at + 1.0 if self.queue else inf
        return [done]

    def fail(self):
        self.dead, self.next_event_at = True, inf
        return self.queue


class Turns:
    """A gateway that takes turns, and writes down what it is told."""

    def __init__(self, engines, refuse=()):
        self.left, self.turn, self.refuse = list(range(engines)), 0, refuse
        self.received, self.ended, self.observations = [], [], 0

    def choose(self, arrival, now):
        assert now == arrival.at
        self.turn += 1
        return None if self.turn in self.refuse else self.left[self.turn % len(self.left)]

    def observe(self, engine, now):
        self.observations += 1
        return (engine, now) if self.observations % 2 else None

    def receive(self, engine, report, now):
        assert report == (engine, pytest.approx(now - HOP))
        self.received.append((engine, now))

    def record_finished(self, engine, outcome, now):
        assert (outcome.engine, outcome.finished_at) == (engine, now)
        self.ended.append(outcome)

    def drop_engine(self, engine, now):
        self.left.remove(engine)
        self.gone_at = now


class Listening(Turns):
    """Writes down first tokens, too."""

    def __init__(self, engines):
        super().__init__(engines)
        self.begun = []

    def record_first_token(self, engine, outcome, now):
        assert (outcome.engine, outcome.first_token_at) == (engine, now)
        assert outcome not in self.ended, "an answer begins before it ends"
        self.begun.append(outcome)


class Slow(Counter):
    """An engine whose answers go on for a second after their first token."""

    def advance(self):
        if self.queue[0].first_token_at is not None:
            return super().advance()
        self.queue[0].first_token_at = self.next_event_at
        self.next_event_at += 1.0
        return []


def arrivals(*times):
    return [Arrival(at, 10, 2) for at in times]


def test_a_request_takes_a_hop_and_its_time():
    gateway = First(2)
    run = simulate_fleet(arrivals(0.5, 0.7), [Counter(0)], gateway)
    assert [outcome.finished_at for outcome in run.outcomes] == pytest.approx([1.5 + HOP, 2.5 + HOP])
    assert gateway.ended == run.outcomes
    assert run.duration == pytest.approx(2.5 + HOP)


def test_refused_requests_have_no_outcome():
    run = simulate_fleet(arrivals(0.0, 0.1, 0.2), [Counter(0)], Turns(1, refuse=(2,)))
    assert [outcome is None for outcome in run.outcomes] == [False, True, False]


def test_sidecars_observe_at_their_interval_and_reports_take_a_hop():
    gateway = Turns(2)
    run = simulate_fleet(arrivals(0.0), [Counter(0), Counter(1)], gateway, network=Network(interval=0.1))
    assert 18 <= gateway.observations <= 22
    assert run.reports == (gateway.observations + 1) // 2
    assert len(gateway.received) in (run.reports, run.reports - 1)


def test_what_a_lost_engine_held_is_lost_and_what_is_sent_to_it_before_the_gateway_knows():
    gateway = Turns(2)
    times = [0.1 * number for number in range(30)]
    run = simulate_fleet(arrivals(*times), [Counter(0), Counter(1)], gateway, failures=[Failure(1.05, 0)])
    lost = [outcome for outcome in run.outcomes if outcome.lost]
    assert {outcome.engine for outcome in lost} == {0}
    assert gateway.gone_at == pytest.approx(2.05)
    assert max(outcome.arrival.at for outcome in lost) < 2.05
    assert all(outcome.engine == 1 for outcome in run.outcomes if outcome.arrival.at > 2.05)
    assert all(engine == 1 for engine, now in gateway.received if now > 1.06)


@given(st.lists(st.floats(0, 20), max_size=30), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_every_request_ends_once_and_the_same_seed_decides_the_same(times, engines, seed, fails):
    failures = [Failure(5.0, 0)] if fails and engines > 1 else []

    def run():
        gateway = Turns(engines)
        made = simulate_fleet(
            arrivals(*sorted(times)),
            [Counter(number) for number in range(engines)],
            gateway,
            failures=failures,
            seed=seed,
        )
        return made, gateway

    (first, gateway), (second, _) = run(), run()
    assert first == second
    assert len(first.outcomes) == len(times)
    assert len(gateway.ended) == sum(not outcome.lost for outcome in first.outcomes)
    assert all(not outcome.lost or outcome.engine == 0 for outcome in first.outcomes)


def test_a_gateway_that_listens_hears_every_answer_begin_once():
    gateway = Listening(2)
    run = simulate_fleet(arrivals(*(0.3 * number for number in range(9))), [Counter(0), Slow(1)], gateway)
    assert sorted(map(id, gateway.begun)) == sorted(map(id, run.outcomes))


@pytest.mark.parametrize("failures", [[], [Failure(2.0, 0)]])
def test_listening_changes_nothing(failures):
    times = arrivals(*(0.2 * number for number in range(20)))
    heard, unheard = (
        simulate_fleet(times, [Counter(0), Slow(1)], gateway, failures=failures)
        for gateway in (Listening(2), Turns(2))
    )
    assert heard == unheard


def test_nothing_to_do():
    run = simulate_fleet([], [Counter(0)], Turns(1))
    assert (run.outcomes, run.duration, run.reports) == ([], 0.0, 0)


class Moving(Counter):
    """An engine whose requests can move."""

    def __init__(self, number):
        super().__init__(number)
        self.handed_back = []

    def streams(self):
        return list(self.queue)

    def leave(self, outcome):
        self.queue.remove(outcome)

    def go_on(self, outcome, now):
        assert not self.dead
        self.queue.append(outcome)
        outcome.engine = self.number
        self.next_event_at = min(self.next_event_at, now + 1.0)


class LastOnes:
    """A relay that has the last request of engine 0 move to engine 1 while it has two, and both are there."""

    interval = 1.0

    def take_back(self, stream, now):
        raise AssertionError("nobody is handed back")

    def moves(self, streams, now):
        if len(streams[0]) > 1 and 1 in streams:
            yield 0, streams[0][-1], 1


class HandingBack(Moving):
    """An engine that hands all that waits back, each time that it has served one request."""

    def advance(self):
        done = super().advance()
        self.handed_back += self.queue
        self.queue.clear()
        self.next_event_at = inf
        return done


class SendingBack:
    """A relay that sends what was handed back to engine 1, five seconds later."""

    interval = 0.5

    def __init__(self):
        self.waiting = []

    def take_back(self, stream, now):
        self.waiting.append((now, stream))

    def moves(self, streams, now):
        while self.waiting and now >= self.waiting[0][0] + 5.0:
            yield None, self.waiting.pop(0)[1], 1


class First(Turns):
    """A gateway that chooses engine 0."""

    def choose(self, arrival, now):
        return 0


def serve_moving(**options):
    engines = [Moving(number) for number in range(2)]
    gateway = First(2)
    arrivals = [Arrival(0.3 * number, 1, 1) for number in range(4)]
    return simulate_fleet(arrivals, engines, gateway, relay=LastOnes(), **options), gateway


def test_requests_that_move_end_at_their_new_engine():
    run, gateway = serve_moving()
    assert run.moved == 2
    assert sorted(outcome.engine for outcome in gateway.ended) == [0, 0, 1, 1]
    assert all(outcome.finished_at is not None for outcome in run.outcomes)


def test_requests_that_are_handed_back_wait_in_the_relay_until_it_sends_them_on():
    run = simulate_fleet(
        [Arrival(0.3 * number, 1, 1) for number in range(3)],
        [HandingBack(0), Moving(1)],
        First(2),
        relay=SendingBack(),
    )
    assert run.moved == 2
    ends = [outcome.finished_at for outcome in run.outcomes]
    assert ends[0] == pytest.approx(1.0 + HOP)
    assert min(ends[1:]) > 6.0
    assert [outcome.engine for outcome in run.outcomes] == [0, 1, 1]


def test_a_request_that_moves_to_an_engine_that_is_lost_meanwhile_is_lost():
    run, _ = serve_moving(failures=[Failure(1.0 + HOP / 2, 1)])
    assert [outcome.lost for outcome in run.outcomes].count(True) == run.moved
