"""What engines are asked: the client's request and token ids, and what its client has where one goes on."""

import orjson
import pytest

from headrace_engine.contracts.resume_arguments import (
    HAND_BACK,
    RESUME_IDS,
    RESUME_TIMES,
    SIGNATURE,
    Resumption,
)
from headrace_gateway.relay.question import Question

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def question(path=CHAT, **fields):
    return Question(path, orjson.dumps({"messages": MESSAGES, "stream": True, **fields}))


def sign(message):
    return b"signed " + message


def first(question):
    return question.after(None, "llm/chat", sign)


def test_the_first_engine_is_asked_for_token_ids_and_all_else_is_as_the_client_wrote_it():
    body = b' {"stream" :true, "seed":12345678901234567890123, "temperature":1e-7, "messages":[{}]}'
    more = b'{"return_token_ids":true,"vllm_xargs":{"headrace_hand_back":1},'
    assert first(Question(CHAT, body)) == more + body[2:]


@pytest.mark.parametrize(("asked", "wants"), [(True, True), (False, False), (None, False)])
def test_a_client_that_says_something_of_token_ids_is_heard(asked, wants):
    made = question(return_token_ids=asked)
    assert made.wants_ids is wants
    assert orjson.loads(first(made))["return_token_ids"] is True


def test_an_engine_that_goes_on_gets_what_was_delivered_beside_the_clients_own_arguments():
    had = Resumption((7, 8), 1.0, 1.5, 2.25)
    body = orjson.loads(question(vllm_xargs={"headrace_ttft_ms": 5}).after(had, "llm/chat", sign))
    assert body["vllm_xargs"] == {
        "headrace_ttft_ms": 5,
        HAND_BACK: 1,
        RESUME_IDS: [7, 8],
        RESUME_TIMES: [1000, 1500, 2250],
        SIGNATURE: b"signed llm/chat 7,8 1000,1500,2250".hex(),
    }
    assert body["messages"] == MESSAGES
    assert body["return_token_ids"] is True


def test_a_request_of_which_nothing_was_delivered_is_asked_again_as_it_was():
    more = {"return_token_ids": True, "vllm_xargs": {HAND_BACK: 1}}
    asked = {**more, "messages": MESSAGES, "stream": True}
    assert orjson.loads(first(question())) == asked


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"stream": False}, "no stream"),
        ({"n": 2}, "several answers (`n`)"),
        ({"best_of": 3}, "several answers (`best_of`)"),
        ({"n": []}, ""),
        ({"prompt_logprobs": 0}, "logprobs of its prompt"),
        ({"use_beam_search": True}, "a beam search"),
        ({"echo": True}, "an echo"),
        ({"include_reasoning": False}, "hidden"),
        ({"prompt": ["a", "b"]}, "several prompts"),
        ({"vllm_xargs": [1]}, "`vllm_xargs` are no object"),
        ({"prompt": [[1], [2]]}, "several prompts"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "more than text"),
    ],
)
def test_what_could_not_go_on_elsewhere_is_passed_on_as_it_is(fields, why):
    made = question(**fields)
    assert why in made.unresumable
    if why:
        assert first(made) == orjson.dumps({"messages": MESSAGES, "stream": True, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1},
        {"n": None, "echo": False, "prompt_logprobs": None, "include_reasoning": True},
        {"prompt": [1, 2, 3]},
        {"prompt": ["a"]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, {"role": "assistant"}]},
    ],
)
def test_what_can_go_on_is_told_apart(fields):
    assert question(**fields).unresumable == ""


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings"])
def test_other_paths_tell_no_tokens(path):
    assert path in question(path).unresumable


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"x"', b"\xff"])
def test_what_is_no_request_is_the_pickers_to_refuse(body):
    made = Question(CHAT, body)
    assert made.unresumable
    assert first(made) == body


@pytest.mark.parametrize(("options", "wants"), [({"include_usage": True}, True), ({}, False), ("x", False)])
def test_who_wants_usage_is_known(options, wants):
    assert question(stream_options=options).wants_usage is wants
