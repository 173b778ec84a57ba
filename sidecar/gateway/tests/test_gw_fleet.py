"""One service's engines: candidates, overload, learned tokens, and a balancer changed while serving."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest
from gw_reports import IDLE
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts import GatewayConfig
from headrace_gateway.balancers import round_robin
from headrace_gateway.balancers.context import FIRST_GUESS
from headrace_gateway.balancers.endpoint import STALE_SECONDS, Work
from headrace_gateway.balancers.protocol import Needs
from headrace_gateway.balancers.waits import all_wait_seconds
from headrace_gateway.pick.fleet import Fleet, NoEngineError, OverloadedError
from headrace_gateway.pick.tokens import Prompt

SHORT = Prompt(requests=1, text_bytes=400, counted_tokens=0)


def fleet(*addresses, **settings):
    config = GatewayConfig("llm", "chat", ("chat",), "chat", **settings)
    made = Fleet.from_config(config, Random(1))
    made.set_addresses(addresses)
    return made


def test_engines_without_fresh_reports_are_avoided():
    service = fleet("a", "b", "c")
    service.observe("a", IDLE, 0.0)
    service.observe("b", replace(IDLE, serving=False), 0.0)
    assert {service.choose(SHORT, 1.0).address for _ in range(5)} == {"a"}


@pytest.mark.parametrize(("reporting", "served"), [(8, 8), (7, 16), (1, 16)])
def test_where_only_a_minority_reports_all_serve(reporting, served):
    addresses = [f"10.0.0.{number}" for number in range(16)]
    service = fleet(*addresses)
    for address in addresses:
        service.observe(address, IDLE, 0.0)
    for address in addresses[:reporting]:
        service.observe(address, IDLE, 10.0)
    chosen = Counter(service.choose(SHORT, 10.0).address for _ in range(10 * served))
    assert set(chosen) == set(addresses[:served])
    assert max(chosen.values()) <= 20


def test_who_falls_silent_or_stops_serving_is_noticed_at_once():
    service = fleet("a", "b", "c")
    for address in "abc":
        service.observe(address, IDLE, 0.0)
    assert len(service.candidates(1.0)) == 3
    service.observe("b", replace(IDLE, serving=False), 1.0)
    assert [each.address for each in service.candidates(1.1)] == ["a", "c"]
    service.observe("b", IDLE, 2.0)
    service.observe("c", IDLE, 2.0)
    assert len(service.candidates(STALE_SECONDS - 0.01)) == 3
    assert [each.address for each in service.candidates(STALE_SECONDS + 0.01)] == ["b", "c"]
    service.set_addresses(["b"])
    assert [each.address for each in service.candidates(STALE_SECONDS + 0.02)] == ["b"]


engines = st.sampled_from("abcd")
events = st.lists(
    st.one_of(
        st.tuples(st.just("choose"), st.integers(1, 40_000)),
        st.tuples(engines, st.integers(0, 5), st.integers(0, 20_000), st.sampled_from([0.0, 5e3, 1e4, 2e4])),
        st.tuples(st.just("pass"), st.floats(0.0, 4.0)),
    ),
    max_size=30,
)


@given(st.lists(st.one_of(st.tuples(st.sampled_from([0, 1]), st.integers(1, 40_000)), engines), max_size=30))
def test_pickers_that_hear_of_each_other_know_the_same(happening):
    """Either chooses, the other hears of it at once, and both get every report: they choose alike."""
    fleets, now, arrivals = [fleet("a", "b", "c", "d") for _ in range(2)], 0.0, Counter()
    for event in happening:
        now += 0.01
        if isinstance(event, str):
            arrivals[event] = fleets[0].endpoints[event].booked_requests + arrivals[event]
            for each in fleets:
                each.observe(event, replace(IDLE, arrivals=arrivals[event]), now)
        else:
            turn, size = event
            placement = fleets[turn].choose(Prompt(1, size, 0, text=b"x" * size), now)
            fleets[1 - turn].take_in(placement, now)
        one, other = ([replace(each, backlog=None) for each in made.endpoints.values()] for made in fleets)
        assert one == other
        assert fleets[0].prefixes == fleets[1].prefixes
    chosen = [made.choose(SHORT, now).address for made in fleets]
    assert chosen[0] == chosen[1]


def test_of_an_engine_that_is_unknown_here_nothing_is_taken_in():
    service = fleet("a")
    service.take_in(fleet("b").choose(SHORT, 0.0), 0.0)
    assert service.endpoints["a"].booked_requests == 0


@given(events)
def test_what_is_summed_up_between_changes_is_what_the_fields_say(happening):
    service, now, arrivals = fleet("a", "b", "c", "d", max_queue_ms=60_000), 0.0, Counter()
    for event in happening:
        if event[0] == "pass":
            now += event[1]
        elif event[0] == "choose":
            with suppress(OverloadedError):
                service.choose(Prompt(1, text_bytes=event[1], counted_tokens=0), now)
        else:
            address, landed, waiting, rate = event
            arrivals[address] += landed
            told = replace(
                IDLE,
                arrivals=arrivals[address],
                waiting_prefill_tokens=waiting,
                waiting_kv_blocks=waiting,
                prefill_tokens_per_second=rate,
            )
            service.observe(address, told, now)
        everyone, work = list(service.endpoints.values()), Work(tokens=700.0, cached={"b": 300.0})
        service.context.now = now
        kept = all_wait_seconds(everyone, work, service.context)
        for endpoint in everyone:
            endpoint.backlog = None
        assert kept == all_wait_seconds(everyone, work, service.context)


def test_a_stuck_engine_serves_nobody_while_another_is_only_silent():
    service = fleet("a", "b")
    service.observe("a", replace(IDLE, serving=False), 0.0)
    assert {service.choose(SHORT, 0.0).address for _ in range(5)} == {"b"}


def test_with_no_report_at_all_every_engine_serves_in_turn():
    service = fleet("a", "b", "c")
    chosen = Counter(service.choose(SHORT, 0.0).address for _ in range(30))
    assert chosen == {"a": 10, "b": 10, "c": 10}


def test_a_queue_of_long_ago_refuses_nobody():
    service = fleet("a", max_queue_ms=1000)
    service.observe("a", replace(IDLE, waiting_prefill_tokens=10**6), 0.0)
    with pytest.raises(OverloadedError):
        service.choose(SHORT, 2.0)
    assert service.choose(SHORT, 10.0).address == "a"


def test_no_engine():
    with pytest.raises(NoEngineError):
        fleet().choose(SHORT, 0.0)


def test_overload_is_the_queue_ahead_on_the_best_engine():
    service = fleet("a", "b", max_queue_ms=2000)
    service.observe("a", replace(IDLE, waiting_prefill_tokens=35_000), 0.0)  # 3.5 s at 10,000 tokens a second
    service.observe("b", replace(IDLE, waiting_prefill_tokens=19_000), 0.0)
    assert service.choose(SHORT, 0.0).address == "b"
    service.observe("b", replace(IDLE, waiting_prefill_tokens=80_000), 0.1)
    with pytest.raises(OverloadedError) as refused:
        service.choose(SHORT, 0.2)
    assert refused.value.retry_after == 2


def test_a_long_prompt_alone_is_no_overload():
    service = fleet("a", max_queue_ms=1000)
    service.observe("a", IDLE, 0.0)
    assert service.choose(Prompt(1, text_bytes=400_000, counted_tokens=0), 0.0).address == "a"


def test_bookings_count_towards_overload():
    service = fleet("a", max_queue_ms=1005)
    service.observe("a", IDLE, 0.0)
    for _ in range(101):  # 100 tokens each against 10,000 tokens a second
        service.choose(SHORT, 0.1)
    with pytest.raises(OverloadedError):
        service.choose(SHORT, 0.1)


@pytest.mark.parametrize(("choices", "text_bytes"), [(1, 120_000), (128, 120_000), (128, 4_000_000)])
def test_who_sends_what_engines_refuse_has_nobody_else_refused(choices, text_bytes):
    """One of them a second, which no report ever confirms, beside 20 a second that land."""
    service, arrivals, now = fleet("a", "b", max_queue_ms=10_000), Counter(), 0.0
    bad = Prompt(choices, text_bytes * choices, 0, choices=choices)
    idle = replace(IDLE, max_model_len=32_768)
    for tick in range(20 * 60):
        now += 0.05
        for address in "ab":
            service.observe(address, replace(idle, arrivals=arrivals[address]), now)
        arrivals[service.choose(SHORT, now).address] += 1
        if tick % 20 == 0:
            service.choose(bad, now)


def test_who_is_refused_for_what_was_just_sent_is_not_for_what_did_not_arrive():
    service = fleet("a", max_queue_ms=1000)
    service.observe("a", IDLE, 0.0)
    service.choose(Prompt(1, text_bytes=80_000, counted_tokens=0), 0.0)
    with pytest.raises(OverloadedError):
        service.choose(SHORT, 0.1)
    service.observe("a", IDLE, 0.9)
    assert service.choose(SHORT, 1.0).address == "a"


@pytest.mark.parametrize(("prefix_caching", "tokens"), [(True, 100), (False, 400)])
def test_of_several_choices_the_prompt_is_computed_once_where_engines_cache_it(prefix_caching, tokens):
    service = fleet("a", prefix_caching=prefix_caching)
    service.choose(Prompt(4, text_bytes=1600, counted_tokens=0, choices=4), 0.0)
    assert service.endpoints["a"].booked_uncached == tokens
    assert service.endpoints["a"].booked_requests == 4


def test_tokens_per_byte_are_learned_from_what_landed():
    service = fleet("a")
    service.observe("a", IDLE, 0.0)
    for number in range(1, 21):
        service.choose(SHORT, float(number))
        service.observe("a", replace(IDLE, arrivals=number, arrived_tokens=number * 50), number + 0.1)
    assert service.token_rate.value() == pytest.approx(50 / 400)


def test_a_cold_engine_borrows_its_siblings_rates():
    service = fleet("a", "b")
    service.observe("a", replace(IDLE, prefill_tokens_per_second=123.0), 0.0)
    service.observe("b", replace(IDLE, prefill_tokens_per_second=0.0), 0.0)
    assert service.context.typical.prefill == 123.0
    assert fleet("x").context.typical == FIRST_GUESS


def test_the_rate_of_a_service_is_one_that_half_of_its_engines_reach():
    service = fleet("a", "b", "c")
    for second, rates in enumerate([(9_000.0, 30_000.0, 20_000.0), (9_000.0, 10_000.0, 20_000.0)]):
        for address, rate in zip("abc", rates, strict=True):
            service.observe(address, replace(IDLE, prefill_tokens_per_second=rate), second + 0.4)
        service.observe("a", replace(IDLE, prefill_tokens_per_second=9_000.0), second + 0.9)
        assert service.context.typical.prefill == sorted(rates)[1]


def test_a_changed_balancer_keeps_what_is_known():
    service = fleet("a", "b", balancer="RoundRobin")
    service.observe("a", replace(IDLE, waiting_prefill_tokens=50_000), 0.0)
    service.observe("b", IDLE, 0.0)
    assert {service.choose(SHORT, 0.0).address for _ in range(2)} == {"a", "b"}
    booked = service.endpoints["b"].booked_tokens
    service.configure(replace(service.config, balancer="SAL"))
    assert service.endpoints["b"].booked_tokens == booked > 0
    assert service.choose(SHORT, 0.1).address == "b"


def test_engines_that_stay_keep_their_books_and_those_that_leave_are_forgotten():
    service = fleet("a", "b")
    service.choose(SHORT, 0.0)
    kept = service.endpoints["b"]
    service.set_addresses(["b", "c"])
    assert service.endpoints.keys() == {"b", "c"}
    assert service.endpoints["b"] is kept
    service.observe("a", IDLE, 0.0)
    assert "a" not in service.endpoints


class BySession:
    """A balancer that asks for a header: requests of one session go to one engine."""

    needs = Needs(headers=("x-session",))

    def pick(self, candidates, work, _context):
        return candidates[int(work.headers.get("x-session", 0))]


@pytest.mark.parametrize(("balancer", "given"), [(BySession(), {"x-session": "1"}), (round_robin, {})])
def test_a_balancer_is_told_the_headers_that_it_needs_and_no_others(balancer, given):
    service, told = fleet("a", "b"), []
    service.balancer = SimpleNamespace(
        needs=balancer.needs, pick=lambda *all_of_it: told.append(all_of_it[1]) or balancer.pick(*all_of_it)
    )
    headers = {"x-session": "1", "x-other": "y"}
    chosen = [service.choose(SHORT, 0.0, headers).address for _ in range(2)]
    assert chosen == (["b", "b"] if given else ["a", "b"])
    assert [work.headers for work in told] == [given, given]
