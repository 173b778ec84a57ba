"""Prompt sizes read from request bodies, and tokens per byte learned."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_gateway.balancers.endpoint import Landed
from headrace_gateway.pick.tokens import (
    FIRST_GUESS,
    MEDIA_FIRST_GUESS,
    BadRequestError,
    Prompt,
    TokenRate,
    read_prompt,
)

USER = {"role": "user", "content": "héllo"}  # six bytes in UTF-8

CALLED = {"name": "sum", "arguments": '{"a": 1}'}  # eleven bytes
CALL = {"type": "function", "function": CALLED}

# Parts of Anthropic's messages.
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "x"}
USE = {"type": "tool_use", "id": "1", "name": "sum", "input": {"a": 1}}  # ten bytes
RESULT = {
    "type": "tool_result",
    "tool_use_id": "1",
    "content": [{"type": "text", "text": "ok"}, {"type": "image"}, {"type": "tool_result", "content": "no"}],
}


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"messages": [USER]}, Prompt(1, 6, 0)),
        ({"messages": [USER, USER], "n": 3}, Prompt(3, 36, 0, choices=3)),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "abc"}, {"type": "image_url"}]}
                ]
            },
            Prompt(1, 3, 0, media=1),
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url"}, {"type": "input_audio"}]},
                    {"role": "user", "content": [{"type": "image_url"}]},
                ],
                "n": 2,
            },
            Prompt(2, 0, 0, media=6, choices=2),
        ),
        ({"messages": [{"role": "assistant", "content": None}]}, Prompt(1, 0, 0)),
        ({"messages": [USER], "system": "abc"}, Prompt(1, 9, 0)),
        ({"messages": [USER], "system": [{"type": "text", "text": "abc"}]}, Prompt(1, 9, 0)),
        ({"messages": [{"role": "assistant", "content": [THOUGHT, USE]}]}, Prompt(1, 12, 0)),
        ({"messages": [{"role": "user", "content": [RESULT]}]}, Prompt(1, 2, 0, media=1)),
        ({"query": "ab", "documents": ["cde", "f"]}, Prompt(2, 8, 0)),
        ({"queries": "ab", "items": {"content": [{"type": "text", "text": "abc"}]}}, Prompt(1, 5, 0)),
        ({"text_1": ["a", "b"], "text_2": ["cc", "d"]}, Prompt(2, 5, 0)),
        ({"messages": [USER], "tools": [{"a": 1}]}, Prompt(1, 15, 0)),
        ({"prompt": "abcd"}, Prompt(1, 4, 0)),
        ({"prompt": ["ab", "cd"], "n": 2}, Prompt(4, 8, 0, choices=2)),
        ({"prompt": [1, 2, 3]}, Prompt(1, 0, 3)),
        ({"prompt": [[1, 2], [3]]}, Prompt(2, 0, 3)),
        ({"input": "abc", "instructions": "x"}, Prompt(1, 4, 0)),
        ({"input": "abc", "tools": [{"a": 1}]}, Prompt(1, 12, 0)),
        ({"input": [USER], "instructions": "x"}, Prompt(1, 7, 0)),
        ({"input": "abc", "prompt": None, "messages": None}, Prompt(1, 3, 0)),
        ({"prompt_embeds": "AAAA", "n": 2}, Prompt(2, 0, 0, choices=2)),
        ({"prompt_embeds": ["AAAA", "AAAA"], "prompt": None}, Prompt(2, 0, 0)),
        ({"input": ["ab"] * 2048}, Prompt(2048, 4096, 0)),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL, CALL]}]}, Prompt(1, 22, 0)),
        ({"input": [USER, CALLED, {"type": "function_call_output", "output": "12"}]}, Prompt(1, 19, 0)),
    ],
)
def test_prompt_sizes(body, prompt):
    assert read_prompt(orjson.dumps(body)) == prompt


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", "has no prompt"),
        (b'{"messages": "hi"}', "`messages`"),
        (b'{"messages": []}', "`messages`"),
        (b'{"messages": [1]}', "`messages`"),
        (b'{"prompt": {}}', "`prompt`"),
        (b'{"prompt": []}', "`prompt`"),
        (b'{"prompt": [1, "a"]}', "`prompt`"),
        (b'{"input": 5}', "`input`"),
        (b'{"messages": [{}], "tools": ' + b"[" * 500 + b"]" * 500 + b"}", "`tools`"),
        (
            b'{"messages": [{"content": [{"type": "tool_use", "input": ' + b"[" * 500 + b"]" * 500 + b"}]}]}",
            "`messages` is nested",
        ),
        (b"[" * 100_000, "not JSON"),
        (orjson.dumps({"prompt": ["a"] * 2049}), "2048"),
        (b'{"prompt": "a", "kv_transfer_params": {"remote_host": "x"}}', "not for clients"),
        (orjson.dumps({"input": [[1]] * 1025, "n": 2}), "2048"),
        (orjson.dumps({"prompt": ["a"] * 1025, "n": 2.0}), "2048"),
        (orjson.dumps({"prompt_embeds": ["a"] * 1025, "n": 2}), "2048"),
        (orjson.dumps({"query": "a", "documents": ["b"] * 2049}), "2048"),
        (b'{"prompt": "a", "n": "128"}', "`n`"),
        (orjson.dumps({"prompt": "a", "input": ["a"] * 2049}), "2048"),
        (orjson.dumps({"messages": [{}], "prompt": ["a"] * 1025, "n": 2}), "2048"),
    ],
)
def test_bad_bodies_name_what_is_wrong(body, complaint):
    with pytest.raises(BadRequestError, match=complaint):
        read_prompt(body)


KEYS = [
    "messages",
    "prompt",
    "input",
    "prompt_embeds",
    "content",
    "text",
    "n",
    "tools",
    "tool_calls",
    "function",
    "arguments",
    "output",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_measured_or_refused(value):
    try:
        prompt = read_prompt(orjson.dumps(value))
    except BadRequestError:
        return
    assert prompt.requests >= 1
    assert prompt.text_bytes >= 0 <= prompt.counted_tokens


def test_a_rate_starts_from_a_guess_and_follows_what_arrives():
    rate = TokenRate()
    assert rate.value() == FIRST_GUESS
    for _ in range(10):
        rate.learn(Landed(text_bytes=100.0, counted_tokens=7.0, media=0, arrived_tokens=57))
    assert rate.value() == pytest.approx(0.5)
    for _ in range(400):
        rate.learn(Landed(text_bytes=100.0, counted_tokens=0.0, media=0, arrived_tokens=20))
    assert rate.value() == pytest.approx(0.2, rel=0.01)
    rate.learn(Landed(text_bytes=0.0, counted_tokens=0.0, media=0, arrived_tokens=20))
    rate.learn(Landed(text_bytes=10.0, counted_tokens=9.0, media=0, arrived_tokens=9))
    assert rate.value() == pytest.approx(0.2, rel=0.01)


@pytest.mark.parametrize(("text_bytes", "tokens"), [(4e6, 12), (10.0, 50_000)])
def test_what_no_tokenizer_gives_is_not_learned(text_bytes, tokens):
    rate = TokenRate()
    rate.learn(Landed(text_bytes=text_bytes, counted_tokens=0.0, media=0, arrived_tokens=tokens))
    assert rate.value() == FIRST_GUESS


def test_work_counts_ids_and_estimates_text():
    work = TokenRate().work(Prompt(requests=2, text_bytes=400, counted_tokens=50))
    assert (work.requests, work.tokens, work.text_bytes, work.counted_tokens) == (2, 150.0, 400, 50)


def test_tokens_of_pictures_are_learned_beside_those_of_text():
    rate = TokenRate()
    assert rate.work(Prompt(1, 400, 0, media=2)).tokens == 100 + 2 * MEDIA_FIRST_GUESS
    for _ in range(20):
        rate.learn(Landed(text_bytes=100.0, counted_tokens=0.0, media=0, arrived_tokens=20))
        rate.learn(Landed(text_bytes=100.0, counted_tokens=0.0, media=3, arrived_tokens=20 + 3 * 576))
    assert rate.value() == pytest.approx(0.2)
    assert rate.work(Prompt(1, 100, 0, media=2)).tokens == pytest.approx(20 + 2 * 576)


def test_pictures_that_bring_no_tokens_teach_nothing():
    rate = TokenRate()
    rate.learn(Landed(text_bytes=4000.0, counted_tokens=0.0, media=1, arrived_tokens=12))
    rate.learn(Landed(text_bytes=4000.0, counted_tokens=0.0, media=1, arrived_tokens=10**9))
    assert rate.of_media() == MEDIA_FIRST_GUESS
