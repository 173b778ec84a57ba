"""The fields of a request to chat, completions and responses, and values that fit into them.

The `openai` client's types say which fields there are and what they hold; vLLM's own say which it takes
beside those. Where a type says little, `MEANT` has values that mean something, and some just beyond those.
"""

import functools
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from openai.types import completion_create_params as completion
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses

from e2e.bench.clients.values import ANYTHING, INTEGERS, NUMBERS, TEXTS, Values, fields, values, weighted

ALMOST_ALL_TOKENS = 2000  # of the engine's 2,048
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """A path, the client's parameters for it, vLLM's, the field of the prompt, and that of the length."""

    path: str
    parameters: Any
    model: str
    prompt: str
    length: str
    prompts: Values
    meant: Mapping[str, Values] = field(default_factory=dict)  # beside `MEANT`


@functools.cache
def optional_fields(endpoint: Endpoint) -> Mapping[str, Values]:
    """List every field that may be given beside model and prompt: values that fit, or any of its type."""
    every = {**vllm_fields(endpoint.model), **openai_fields(endpoint)}
    meant = {**MEANT, **endpoint.meant}
    return {
        name: weighted((9, meant[name]), (1, values(hint))) if name in meant else values(hint)
        for name, hint in every.items()
        if name not in ("model", endpoint.prompt)
    }


def openai_fields(endpoint: Endpoint) -> dict[str, Any]:
    """List the fields that the `openai` client knows, with their types."""
    return {
        name: hint for each in typing.get_args(endpoint.parameters) for name, hint in fields(each).items()
    } | {"stream": bool}


def vllm_fields(model: str) -> dict[str, Any]:
    """List the fields that vLLM takes, with their types, whether OpenAI's API has them or not."""
    # It takes seconds to import: only here.
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: PLC0415
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest  # noqa: PLC0415
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest  # noqa: PLC0415

    models = {each.__name__: each for each in (ChatCompletionRequest, CompletionRequest, ResponsesRequest)}
    return fields(models[model])


_WORDS = st.lists(
    st.sampled_from(["the", "mill", "stands", "by", "Fluß", "河", "🌊", "\n"]), min_size=1, max_size=60
).map(" ".join)
_LONG = st.sampled_from([100, 1000, ALMOST_ALL_TOKENS]).map(lambda count: "x" * count)
_TOO_LONG = st.sampled_from([2048, 5000, 200_000]).map(lambda count: "x" * count)
_PROMPT = weighted((12, _WORDS), (6, _LONG), (1, TEXTS), (1, _TOO_LONG))
_FITTING_TOKEN = st.integers(0, 257)
_TOKEN = weighted((40, _FITTING_TOKEN), (1, st.sampled_from([-1, 320, 2**31, 2**63, 10**400])))
_TOKENS = weighted((6, st.lists(_FITTING_TOKEN, min_size=1, max_size=300)), (1, st.lists(_TOKEN, max_size=8)))
_COMPLETION_PROMPT = weighted(
    (20, _PROMPT),
    (8, _TOKENS),
    (2, st.lists(_PROMPT, max_size=4)),
    (2, st.lists(_TOKENS, max_size=3)),
    (1, st.sampled_from([None, ""])),
)
_TEXT_PART = st.builds(lambda text: {"type": "text", "text": text}, _PROMPT)
_PART = weighted(
    (12, _TEXT_PART),
    (
        1,
        st.sampled_from(
            [
                {"type": "image_url", "image_url": {"url": PIXEL}},
                {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/no.png", "detail": "high"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"file_data": "AAAA", "filename": "a.pdf"}},
                {"type": "refusal", "refusal": "no"},
            ]
        ),
    ),
)
_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
}
_SAID: Values = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "user", "system", "developer", "assistant"]), "content": _PROMPT}
)
_MESSAGE = weighted(
    (9, _SAID),
    (2, st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(_PART, max_size=3)})),
    (1, st.just({"role": "assistant", "tool_calls": [_CALL]})),
    (
        1,
        st.fixed_dictionaries(
            {"role": st.just("tool"), "tool_call_id": st.just("call_1"), "content": _PROMPT}
        ),
    ),
)
_MESSAGES = st.lists(_MESSAGE, min_size=1, max_size=4)
LENGTHS = weighted((4, st.integers(1, 24)), (1, st.sampled_from([1, 200])))
_ANY_LENGTHS = weighted((6, LENGTHS), (1, st.sampled_from([0, -1, 2**31, 2048])))

_FUNCTION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 0}},
    "required": ["city"],
}
_DEEP: dict[str, Any] = {"type": "null"}
for _ in range(100):
    _DEEP = {"type": "array", "items": _DEEP}
_SCHEMA: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [
            _FUNCTION_SCHEMA,
            {},
            {"type": "object", "properties": {}, "additionalProperties": False},
            {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 1_000_000},
            {"type": "string", "pattern": "^(a+)+$"},
            {"type": "string", "pattern": "(?=x)["},
            {"type": "string", "format": "date-time", "maxLength": 100_000},
            {"type": "integer", "minimum": -(10**30), "maximum": 10**30, "multipleOf": 7},
            {"enum": [None, 1, "é", [1], {"a": 1}]},
            {"enum": []},
            {"const": "\U0001f30a"},
            {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
            {"$ref": "#"},
            {"$ref": "#/$defs/missing"},
            {"$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "$ref": "#/$defs/tree"},
            {"allOf": [{"type": "string"}, {"type": "integer"}]},
            {"not": {}},
            {"type": ["string", "null"]},
            {"type": "unknown"},
            {"type": "object", "patternProperties": {"^x": {"type": "boolean"}}, "minProperties": 2},
            _DEEP,
            {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(300)}},
        ]
    ),
    st.dictionaries(TEXTS, ANYTHING, max_size=3),
)
_TOOL = st.builds(
    lambda schema, strict: {
        "type": "function",
        "function": {"name": "weather", "description": "tells it", "parameters": schema, "strict": strict},
    },
    _SCHEMA,
    st.booleans(),
)
_FORMAT = st.one_of(
    st.sampled_from([{"type": "text"}, {"type": "json_object"}]),
    st.builds(
        lambda schema: {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": True},
        },
        _SCHEMA,
    ),
    st.builds(
        lambda schema: {
            "type": "structural_tag",
            "structures": [{"begin": "<f>", "schema": schema, "end": "</f>"}],
            "triggers": ["<f"],
        },
        _SCHEMA,
    ),
)
_REGEX = st.sampled_from(
    [
        "[a-c]{3}",
        "(a|b)*",
        "",
        "(",
        "a{1,100000}",
        "\\d+\\b",
        "(?:é|🌊)+",
        "[^\\x00-\\xff]",
        "(a+)+$",
        "\\p{L}",
        ".*",
    ]
)
_GRAMMAR = st.sampled_from(
    [
        'root ::= "yes" | "no"',
        "root ::= root",
        "root ::= missing",
        "",
        'root ::= ("a" | root)*',
        'start: "a"+',
        "root ::= [",
        'root ::= ""',
    ]
)
_STRUCTURED = st.one_of(
    st.fixed_dictionaries({"regex": _REGEX}),
    st.fixed_dictionaries({"grammar": _GRAMMAR}),
    st.fixed_dictionaries({"json": _SCHEMA | _SCHEMA.map(json.dumps) | TEXTS}),
    st.fixed_dictionaries({"choice": st.lists(TEXTS, max_size=4)}),
    st.just({"json_object": True}),
)
_LOGPROBS = weighted((6, st.integers(0, 20)), (1, st.sampled_from([-1, -2, 21, 320, 100_000])))
_STOP = st.one_of(TEXTS, st.lists(TEXTS, max_size=5), st.sampled_from([[""], ["a"] * 100, "x" * 10_000]))

MEANT: Mapping[str, Values] = {
    "max_tokens": _ANY_LENGTHS,
    "max_completion_tokens": _ANY_LENGTHS,
    "max_output_tokens": _ANY_LENGTHS,
    "min_tokens": st.integers(0, 30),
    "n": weighted((6, st.integers(1, 6)), (1, st.sampled_from([0, -1, 16, 128, 129, 10**9]))),
    "best_of": weighted((6, st.integers(1, 6)), (1, st.sampled_from([0, -1, 20]))),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries(
        {"include_usage": st.booleans()},
        optional={"continuous_usage_stats": st.booleans(), "include_obfuscation": st.booleans()},
    ),
    "logprobs": _LOGPROBS,
    "top_logprobs": _LOGPROBS,
    "prompt_logprobs": _LOGPROBS,
    "logprob_token_ids": st.lists(_TOKEN, max_size=5),
    "echo": st.booleans(),
    "suffix": TEXTS,
    "stop": _STOP,
    "seed": INTEGERS,
    "temperature": weighted((6, st.floats(0, 2)), (2, st.sampled_from([0, 1e-9, 1e-300, 2.1, -1, 1e300]))),
    "top_p": weighted((6, st.floats(0.01, 1)), (2, st.sampled_from([0, 1e-12, 1, 1.1]))),
    "top_k": weighted((4, st.integers(-1, 400)), (1, INTEGERS)),
    "min_p": weighted((6, st.floats(0, 1)), (2, st.sampled_from([0, 1, 1.1]))),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "repetition_penalty": weighted((4, st.floats(0.1, 3)), (1, st.sampled_from([0, 1e-300, 1e300]))),
    "logit_bias": st.dictionaries(
        weighted((20, st.integers(0, 319).map(str)), (1, st.sampled_from(["-1", "320", "9" * 30, "x", ""]))),
        st.floats(-100, 100) | NUMBERS,
        max_size=4,
    ),
    "stop_token_ids": st.lists(_TOKEN, max_size=5),
    "allowed_token_ids": st.lists(_TOKEN, min_size=1, max_size=5) | st.just([]),
    "bad_words": st.lists(TEXTS, max_size=3),
    "ignore_eos": st.booleans(),
    "use_beam_search": st.booleans(),
    "truncate_prompt_tokens": st.sampled_from([-1, 0, 1, 16, 100, 1000, 2047, 2048, 2**62]),
    "tools": st.lists(_TOOL, max_size=3),
    "tool_choice": st.sampled_from(
        ["none", "auto", "required", {"type": "function", "function": {"name": "weather"}}]
    ),
    "response_format": _FORMAT,
    "structured_outputs": _STRUCTURED,
    "text": st.builds(
        lambda schema: {"format": {"type": "json_schema", "name": "answer", "schema": schema}}, _SCHEMA
    ),
    "modalities": st.sampled_from([["text"], ["text", "audio"], []]),
    "request_id": st.sampled_from(["same", "same", "", "x" * 1000]),
    "cache_salt": TEXTS,
    "chat_template": st.sampled_from(["{{ messages }}", "{{ 1/0 }}", "{% for %}", ""]),
    "continue_final_message": st.booleans(),
    "add_generation_prompt": st.booleans(),
    "vllm_xargs": st.dictionaries(
        st.sampled_from(["headrace_ttft_ms", "headrace_e2e_ms", "headrace_output_tokens", "other"]),
        INTEGERS | TEXTS | NUMBERS,
        max_size=3,
    ),
}
"""Values that mean something where the field's type alone says little."""

NEEDS: Mapping[str, Mapping[str, Values]] = {
    "top_logprobs": {"logprobs": st.just(True), "include": st.just(["message.output_text.logprobs"])},
    "logprob_token_ids": {"logprobs": st.just(True)},
    "stream_options": {"stream": st.just(True)},
    "tool_choice": {"tools": st.lists(_TOOL, min_size=1, max_size=2)},
    "best_of": {"n": st.integers(1, 3)},
    "continue_final_message": {"add_generation_prompt": st.just(False)},
    "length_penalty": {"use_beam_search": st.just(True)},
}
"""Fields that mean nothing without another."""

_INPUT_ITEM = weighted(
    (
        6,
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": _PROMPT}
        ),
    ),
    (
        1,
        st.sampled_from(
            [
                {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"role": "user", "content": [{"type": "input_image", "image_url": PIXEL, "detail": "auto"}]},
                {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "rain"},
                {"type": "item_reference", "id": "msg_1"},
                {"type": "reasoning", "id": "rs_1", "summary": []},
            ]
        ),
    ),
)


def _flat(tool: dict[str, Any]) -> dict[str, Any]:
    """Write a tool as responses take it."""
    return {"type": "function", **tool["function"]}


_INPUT = weighted(
    (8, _PROMPT),
    (4, st.lists(_INPUT_ITEM, min_size=1, max_size=3)),
    (1, values(fields(responses.ResponseCreateParamsNonStreaming)["input"])),
)
ENDPOINTS = (
    Endpoint(
        *("/chat/completions", chat.CompletionCreateParams, "ChatCompletionRequest", "messages"),
        *("max_completion_tokens", _MESSAGES, {"logprobs": st.booleans()}),
    ),
    Endpoint(
        *("/completions", completion.CompletionCreateParams, "CompletionRequest", "prompt", "max_tokens"),
        _COMPLETION_PROMPT,
    ),
    Endpoint(
        *("/responses", responses.ResponseCreateParams, "ResponsesRequest", "input", "max_output_tokens"),
        _INPUT,
        {
            "tools": st.lists(_TOOL.map(_flat), max_size=3),
            "tool_choice": st.sampled_from(
                ["none", "auto", "required", {"type": "function", "name": "weather"}]
            ),
            "include": st.just(["message.output_text.logprobs"]),
        },
    ),
)
