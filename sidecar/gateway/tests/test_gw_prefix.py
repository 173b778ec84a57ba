"""SAL sends a prompt where its beginning is, unless the wait there is longer than computing it again."""

from dataclasses import replace
from random import Random

import orjson
import pytest
from gw_reports import IDLE

from headrace_engine.contracts import GatewayConfig
from headrace_gateway.balancers.waits import wait_seconds
from headrace_gateway.pick.fleet import Fleet
from headrace_gateway.pick.tokens import read_prompt


def fleet(balancer="SAL"):
    made = Fleet.from_config(GatewayConfig("llm", "chat", ("chat",), "chat", balancer=balancer), Random(0))
    made.set_addresses(["a", "b", "c"])
    for address in "abc":
        made.observe(address, replace(IDLE, total_kv_blocks=100_000), 0.0)
    return made


def landed(made, address, now, **load):
    """The engine reports that everything sent has arrived."""
    endpoint = made.endpoints[address]
    arrivals = endpoint.report.arrivals + endpoint.booked_requests
    tokens = endpoint.report.arrived_tokens + round(endpoint.booked_tokens)
    made.observe(address, replace(endpoint.report, arrivals=arrivals, arrived_tokens=tokens, **load), now)


def chat(*turns):
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(turns)]
    return read_prompt(orjson.dumps({"messages": messages}))


FIRST = "first " * 3000


def test_the_next_turn_goes_where_the_chat_is():
    made = fleet()
    home = made.choose(chat(FIRST), 0.0).address
    for address in "abc":
        landed(made, address, 1.0)
    for _ in range(5):
        made.choose(chat("other " * 3000 + str(_)), 1.0)
    for address in "abc":
        landed(made, address, 5.0)
    assert made.choose(chat(FIRST, "answer", "and then?"), 5.0).address == home


def test_a_picture_behind_a_known_beginning_is_still_to_be_computed():
    made = fleet()
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    seen = {
        "messages": [
            {"role": "system", "content": FIRST[:4096]},
            {"role": "user", "content": [picture] * 10},
        ]
    }
    home = made.endpoints[made.choose(read_prompt(orjson.dumps(seen)), 0.0).address]
    landed(made, home.address, 1.0)
    made.choose(read_prompt(orjson.dumps(seen)), 5.0)
    assert home.booked_uncached > 9000  # ten pictures
    assert home.booked_tokens - home.booked_uncached > 900  # the beginning


def test_a_long_queue_is_worse_than_computing_again():
    made = fleet()
    home = made.choose(chat(FIRST), 0.0).address
    landed(made, home, 1.0, running=1, waiting=9, waiting_prefill_tokens=90_000)
    assert made.choose(chat(FIRST, "answer", "and then?"), 1.0).address != home


def test_what_is_cached_is_booked_as_kv_but_not_as_prefill():
    made = fleet()
    home = made.endpoints[made.choose(chat(FIRST), 0.0).address]
    landed(made, home.address, 1.0)
    made.choose(chat(FIRST, "answer", "next"), 3.0)
    assert home.booked_tokens > 4000
    assert home.booked_uncached < 400


def test_waiting_prompts_that_are_mostly_cached_count_little():
    made = fleet()
    home = made.endpoints[made.choose(chat(FIRST), 0.0).address]
    landed(made, home.address, 1.0)
    for number in range(80):
        now = 2.0 + number
        for address in "abc":
            landed(made, address, now)
        assert made.choose(chat(FIRST, "answer", str(number)), now).address == home.address
    landed(made, home.address, 90.0, running=1, waiting=1, waiting_prefill_tokens=10_000)
    assert home.queued_tokens < 2500


@pytest.mark.parametrize("balancer", ["LeastRequest", "PowerOfTwo", "RoundRobin", "Random"])
def test_other_balancers_keep_no_index(balancer):
    made = fleet(balancer)
    made.choose(chat(FIRST), 0.0)
    assert len(made.prefixes) == 0


def test_the_same_prompt_as_text_or_ids_or_with_tools_begins_alike():
    ids = [read_prompt(orjson.dumps({"prompt": list(range(count))})).text for count in (300, 400)]
    assert ids[1].startswith(ids[0])
    tools = [{"type": "function", "function": {"name": "look"}}]
    with_tools = [
        read_prompt(orjson.dumps({"messages": [{"role": "user", "content": "x" * n}], "tools": tools})).text
        for n in (300, 400)
    ]
    assert with_tools[1].startswith(with_tools[0])


def text_of(content, **extra):
    return read_prompt(orjson.dumps({"messages": [{"role": "user", "content": content}], **extra})).text


@pytest.mark.parametrize(
    "results",
    [
        [{"type": "function_call_output", "output": "x" * 9000 + end} for end in "ab"],
        [{"type": "function_call", "name": "f", "arguments": end} for end in "ab"],
        [
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": end}}]}
            for end in "ab"
        ],
    ],
)
def test_what_tools_get_and_say_is_part_of_the_prompt(results):
    begun = {"role": "user", "content": "y"}
    one, other = (read_prompt(orjson.dumps({"input": [begun, result]})).text for result in results)
    assert one != other
    assert len(one) == len(other)


def test_nothing_after_a_picture_is_taken_for_the_same_beginning():
    words = {"type": "text", "text": "What is this? " * 50}
    first, second = (text_of([{"type": "image_url", "image_url": {"url": f"data:{n}"}}, words]) for n in "ab")
    assert first == second
    assert b"What" not in first
    assert text_of([words]) == text_of(words["text"])


def test_requests_of_different_cache_salt_begin_differently():
    assert text_of("hello", cache_salt="a")[:1] != text_of("hello", cache_salt="b")[:1]
    prompts = [read_prompt(orjson.dumps({"prompt": "hello", "cache_salt": salt})).text for salt in "ab"]
    assert prompts[0][:1] != prompts[1][:1]


def test_engines_that_cache_no_prefixes_are_sent_prompts_by_load_alone():
    made = fleet()
    made.configure(replace(made.config, prefix_caching=False))
    made.choose(chat(FIRST), 0.0)
    assert len(made.prefixes) == 0


@pytest.mark.parametrize("body", [{"prompt": ["a", "b"]}, {"prompt": [1 << 40]}, {"prompt": [-1]}])
def test_what_has_no_one_beginning_has_no_text(body):
    assert read_prompt(orjson.dumps(body)).text == b""


def test_the_step_under_way_counts_though_no_report_shows_it():
    made = fleet()
    long, short = chat("x" * 80_000), chat("y" * 400)
    busy = made.endpoints[made.choose(long, 0.0).address]  # 20,000 tokens at 10,000 a second
    landed(made, busy.address, 0.1, running=1)  # all of it is in the step that runs
    made.context.now = 0.2
    work = made.token_rate.work(short)
    assert wait_seconds(busy, work, made.context) == pytest.approx(1.8, abs=0.1)
    landed(made, busy.address, 0.3, running=0)
    made.context.now = 0.3
    assert wait_seconds(busy, work, made.context) < 0.1


def test_an_engine_works_on_while_it_does_not_report():
    made = fleet()
    work = made.token_rate.work(chat("y" * 400))
    made.observe(
        "a", replace(made.endpoints["a"].report, running=1, waiting=5, waiting_prefill_tokens=20_000), 0.0
    )
    waits = []
    for now in (0.0, 1.0, 2.5):
        made.context.now = now
        waits.append(wait_seconds(made.endpoints["a"], work, made.context))
    assert waits[0] == pytest.approx(2.0, abs=0.05)
    assert waits[1] == pytest.approx(1.1, abs=0.1)
    assert waits[2] < 0.1
