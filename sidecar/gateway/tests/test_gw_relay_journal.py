"""What a client gets over several engines is what one would have sent."""

import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts.resume_arguments import HANDED_BACK
from headrace_gateway.relay.journal import Journal, Passage, ending, error_event

DONE = b"data: [DONE]\n\n"
BACK = f'"stop_reason":"{HANDED_BACK}"'.encode()


def event(text, ids, created=7, finish=None, **more):
    """A chunk of a chat's stream, as vLLM writes it."""
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": created, "model": "tiny"}
    return b"data: " + orjson.dumps({**body, "choices": [choice], **more}) + b"\n\n"


def role(created=7):
    return event("", None, created, prompt_token_ids=[1, 2, 3])


def stream(tokens, grouped, created=7):
    """An engine's whole answer; `grouped`: how many tokens each event has, one where it ends."""
    yield role(created)
    at = 0
    for size in [*grouped, *[1] * len(tokens)]:
        ids = tokens[at : at + size]
        if ids:
            at += len(ids)
            finish = "length" if at == len(tokens) else None
            yield event("".join(f"<{each}>" for each in ids), ids, created, finish)
    yield DONE


def texts(data):
    events = [each for each in data.split(b"\n\n") if each.startswith(b"data: {")]
    return "".join(
        choice["delta"]["content"]
        for each in events
        for choice in orjson.loads(each.removeprefix(b"data: "))["choices"]
    )


tokens = st.lists(st.integers(0, 2**31), min_size=1, max_size=30)
groups = st.lists(st.integers(1, 4), max_size=30)


@given(tokens, st.lists(st.tuples(groups, st.integers(0, 60)), max_size=4), st.data())
def test_an_answer_over_many_engines_reads_like_one(ids, engines, data):
    journal = Journal(wants_ids=True)
    got = b""
    for number, (grouped, cut) in enumerate([*engines, ([], 10_000)]):
        had = len(journal.token_ids)
        whole = b"".join(stream(ids, [1] * had + grouped, created=7 + number))
        places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
        passage = Passage(journal)
        if cut < 10_000:
            whole = whole[: len(whole) * cut // 60]
        for start, end in zip([0, *places], [*places, len(whole)], strict=True):
            got += passage.take(whole[start:end])
        assert not passage.failure
        if journal.is_finished:
            break
    got += ending(journal, with_usage=False)
    assert texts(got) == "".join(f"<{each}>" for each in ids)
    assert list(journal.token_ids) == ids
    assert got.endswith(DONE)
    assert got.count(DONE) == 1
    assert got.count(b'"content":""') == 1  # the role's
    assert set(re.findall(rb'"created":(\d+)', got)) <= {got.partition(b'"created":')[2].partition(b",")[0]}


def test_an_engine_that_hands_a_request_back_is_not_lost_and_the_client_does_not_see_it():
    journal = Journal()
    passage = Passage(journal)
    ended = event("", [], finish="abort").replace(b'"abort"', b'"abort",' + BACK)
    assert texts(passage.take(role() + event("a", [5]) + ended + DONE)) == "a"
    assert passage.is_handed_back
    assert (passage.failure, journal.is_finished, journal.is_done) == ("", False, False)


def test_a_stop_string_of_the_clients_hands_nothing_back():
    journal = Journal()
    passage = Passage(journal)
    ended = event("a", [5], finish="stop").replace(b'"stop"', b'"stop",' + BACK)
    assert texts(passage.take(role() + ended)) == "a"
    assert journal.is_finished
    assert not passage.is_handed_back


def test_ids_are_hidden_from_who_did_not_ask_for_them():
    journal = Journal()
    got = Passage(journal).take(role() + event("a", [5, 6]) + event("b", [7], finish="stop"))
    assert got == (
        role().replace(b"[1,2,3]", b"null")
        + event("a", None).replace(b'"finish_reason":null', b'"finish_reason":null,"token_ids":null')
        + event("b", None, finish="stop").replace(b'"stop"', b'"stop","token_ids":null')
    )
    assert list(journal.token_ids) == [5, 6, 7]


def test_a_text_that_looks_like_ids_stays():
    text = '"token_ids":[1,2], "finish_reason":"stop" data: [DONE]\n\n'
    journal = Journal()
    assert texts(Passage(journal).take(event(text, [5]))) == text
    assert list(journal.token_ids) == [5]
    assert not journal.is_finished


def test_tokens_without_text_are_told_to_nobody_who_did_not_ask():
    silent = event("", [5]).replace(b'"delta":{"content":""}', b'"delta":{}')
    assert Passage(Journal()).take(silent) == b""
    assert Passage(Journal(wants_ids=True)).take(silent) == silent


def test_half_an_event_is_kept_back_and_lost_with_its_engine():
    journal = Journal(wants_ids=True)
    whole = event("a", [5])
    first = Passage(journal)
    assert first.take(whole[:50]) == b""
    assert first.take(whole[50:] + event("b", [6])[:80]) == whole
    assert Passage(journal).take(event("a", [5]) + event("b", [6])) == event("b", [6])


@pytest.mark.parametrize(
    ("last", "failure"),
    [
        (b'data: {"error":{"message":"EngineCore died","type":"x","param":null,"code":500}}\n\n', "died"),
        (b'data: {"error":{"message":"gone","type":"x","param":null,"code":null}}\n\n', "gone"),
        (b'data: {"error":"what"}\n\n', "the engine failed"),
        (b'data: {"error" what}\n\n', "the engine failed"),
        (event("b", [6], finish="abort"), "gave the request up"),
    ],
)
def test_an_engine_that_fails_in_its_answer_is_lost_and_says_no_more(last, failure):
    passage = Passage(Journal(wants_ids=True))
    assert passage.take(event("a", [5]) + last + event("c", [7])) == event("a", [5])
    assert failure in passage.failure


def test_an_error_of_the_request_is_the_clients():
    told = b'data: {"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}\n\n'
    passage = Passage(Journal())
    assert passage.take(told + DONE) == told + DONE
    assert not passage.failure


def test_an_engine_with_another_beginning_is_not_believed():
    journal = Journal()
    Passage(journal).take(role() + event("a", [5]))
    passage = Passage(journal)
    assert passage.take(role() + event("x", [9]) + event("y", [10])) == b""
    assert passage.failure == "another engine told other tokens than the client has"


@pytest.mark.parametrize("with_usage", [True, False])
def test_an_engine_that_dies_after_the_last_token_needs_no_other(with_usage):
    journal = Journal()
    Passage(journal).take(role() + event("a", [5, 6], finish="stop"))
    assert journal.is_finished
    *usage, done, rest = ending(journal, with_usage=with_usage).split(b"\n\n")
    assert (done + b"\n\n", rest) == (DONE, b"")
    told = [orjson.loads(each.removeprefix(b"data: ")) for each in usage]
    counted = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    expected = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "tiny"}
    assert told == ([{**expected, "choices": [], "usage": counted}] if with_usage else [])


def test_nothing_is_added_to_a_stream_that_has_ended():
    journal = Journal()
    Passage(journal).take(event("a", [5], finish="stop") + DONE)
    assert ending(journal, with_usage=True) == b""


def test_an_answer_without_ids_is_not_counted():
    journal = Journal()
    assert journal.is_counted
    passage = Passage(journal)
    passage.take(event("", None))
    assert not journal.is_counted
    passage.take(event("Hello", None))
    assert not journal.is_counted


def test_an_answer_of_which_its_beginning_alone_came_is_counted():
    journal = Journal()
    Passage(journal).take(role())
    assert journal.is_counted


@pytest.mark.parametrize(("named", "begins"), [(False, b"data: {"), (True, b"event: error\ndata: {")])
def test_an_error_has_a_name_where_events_have_names(named, begins):
    assert error_event({"error": {}}, named=named).startswith(begins)
