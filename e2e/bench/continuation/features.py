"""What a request can ask of the sampler and of vLLM's parsers, each of which has to survive a cut."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.cluster import model

MODEL = "tiny"
ARGUMENTS = ("--enable-auto-tool-choice", "--tool-call-parser=hermes", "--reasoning-parser=qwen3")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
TOKENS = 96  # of an answer that is not ended earlier
_ADDED = ("<think>", "</think>", "<tool_call>", "</tool_call>")  # tokens of the model, beside the cluster's
_THINK, _THINK_ENDS, _TOOL_CALL = "258", "259", "260"  # their ids

Body = Mapping[str, Any]

_GREEDY = {"temperature": 0, "ignore_eos": True}
_CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "pattern": "^[a-z]{10,30}$"}},
    "required": ["city"],
    "additionalProperties": False,
}
_PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[a-z]{30,40}$"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": _CITY}}]
_CALL = '<tool_call>\n\\{"name": "weather", "arguments": \\{"city": "[a-z]{20}"\\}\\}\n</tool_call>'
# A random model thinks until chance ends it: it is helped to end, and not to call a tool in mid-thought.
_THOUGHT = {_THINK_ENDS: 3.0, _THINK: -100.0, _TOOL_CALL: -100.0}

FEATURES: Mapping[str, tuple[str, Body]] = {
    "greedy": (TEXT, _GREEDY),
    "seed": (TEXT, {"seed": 7, "ignore_eos": True}),
    "top-p, top-k": (TEXT, {"seed": 7, "temperature": 0.8, "top_p": 0.9, "top_k": 40, "ignore_eos": True}),
    "presence penalty": (TEXT, {**_GREEDY, "presence_penalty": 1.0}),
    "frequency penalty": (TEXT, {**_GREEDY, "frequency_penalty": 0.5}),
    "repetition penalty": (TEXT, {"seed": 3, "ignore_eos": True, "repetition_penalty": 1.1}),
    "logit bias": (TEXT, {**_GREEDY, "logit_bias": {"70": 3.0, "71": 2.0}}),
    "bad words": (TEXT, {**_GREEDY, "bad_words": ["ff", "ab"]}),
    "stop strings": (TEXT, {"seed": 11, "stop": ["a", "bc", "QZ"]}),
    "stop ids, min_tokens": (TEXT, {"seed": 4, "min_tokens": 50, "stop_token_ids": [*range(0, 256, 3)]}),
    "logprobs": (TEXT, {"seed": 9, "ignore_eos": True, "logprobs": 3}),
    "regex": (TEXT, {"seed": 2, "structured_outputs": {"regex": "[a-j]{40}-[0-9]{20}"}}),
    "JSON schema": (TEXT, {"seed": 1, "structured_outputs": {"json": _PERSON}}),
    "chat": (CHAT, {"seed": 5, "ignore_eos": True}),
    "chat logprobs": (CHAT, {"seed": 5, "ignore_eos": True, "logprobs": True, "top_logprobs": 2}),
    "reasoning": (
        CHAT,
        {
            "seed": 8,
            "max_tokens": 160,
            "logit_bias": _THOUGHT,
            "structured_outputs": {"regex": "[a-z ]{60}"},
        },
    ),
    "tool call": (
        CHAT,
        {
            "seed": 6,
            "max_tokens": 200,
            "logit_bias": _THOUGHT,
            "tools": _TOOLS,
            "structured_outputs": {"regex": f"[a-z]{{10}}{_CALL}"},
        },
    ),
    "tool call, required": (
        CHAT,
        {
            "seed": 6,
            "max_tokens": 200,
            "logit_bias": _THOUGHT,
            "tools": _TOOLS,
            "tool_choice": "required",
        },
    ),
}
"""By name: the path, and what the request asks beside its prompt."""


def write_model(folder: Path) -> None:
    """Write the cluster's tiny model, with the tokens that vLLM's parsers look for."""
    from transformers import AutoTokenizer  # noqa: PLC0415  takes seconds to import

    model.write(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(_ADDED))
    tokenizer.save_pretrained(folder)


def body(name: str, prompt: str) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a request with this feature."""
    path, asked = FEATURES[name]
    told: dict[str, Any]
    if path == TEXT:  # where an output has a structure as soon as the prompt has ended a thought
        told = {"prompt": f"{prompt}</think>" if "structured_outputs" in asked else prompt}
    else:
        told = {"messages": [{"role": "user", "content": prompt}]}
    return path, {"model": MODEL, "max_tokens": TOKENS, **asked, **told}
