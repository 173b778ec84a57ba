"""A client's request for a stream, as the first engine gets it, and as one that goes on with the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from aiohttp import StreamReader

from headrace_engine.contracts import resume_arguments
from headrace_engine.contracts.resume_arguments import HAND_BACK, Resumption
from headrace_gateway.pick.tokens import ARGUMENTS, FIRST_GUESS

ASK_FOR_IDS = "return_token_ids"
PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})  # whose streams tell token ids
_ALONE = ("n", "best_of")  # how many answers
_BEYOND = {  # what an engine does not take up in the middle, or what hides its tokens
    "prompt_logprobs": "logprobs of its prompt",
    "prompt_embeds": "a prompt of embeddings",
    "use_beam_search": "a beam search",
    "echo": "an echo of its prompt",
}
_OPENING = re.compile(rb"\s*\{")


class Question:
    """A request's body; `unresumable` says why its answer could not go on elsewhere, empty if it could."""

    def __init__(self, path: str, body: bytes) -> None:
        fields = _fields(body)
        self._body = body
        self.prompt_tokens = int(len(body) * FIRST_GUESS)  # about
        self.unresumable = _explain(path, fields)
        self.wants_ids = bool(fields.get(ASK_FOR_IDS))
        options = fields.get("stream_options")
        self.wants_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
        if not self.unresumable:
            self._body = _ask_for_more(body, fields)

    def after(self, resumption: Resumption | None, service: str, sign: Callable[[bytes], bytes]) -> bytes:
        """Return the body for an engine of `service` that goes on from there; None: for the first engine."""
        if resumption is None:
            return self._body
        fields = _fields(self._body)
        more = resume_arguments.arguments(sign, service, resumption)
        fields[ARGUMENTS] = {**(fields.get(ARGUMENTS) or {}), **more}
        return orjson.dumps(fields)


class Unread:
    """A request's body that is sent on as it comes, once; as a `Question` that cannot go on elsewhere."""

    unresumable = "the relay keeps as many requests as its memory allows"
    wants_ids = wants_usage = False
    prompt_tokens = 0  # nobody asks

    def __init__(self, body: StreamReader) -> None:
        self._body = body

    def after(
        self, _resumption: Resumption | None, _service: str, _sign: Callable[[bytes], bytes]
    ) -> StreamReader:
        """Return the body for the first engine."""
        return self._body


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:  # the picker refuses it
        return {}
    return fields if isinstance(fields, dict) else {}


def _explain(path: str, fields: Mapping[str, Any]) -> str:
    if path not in PATHS:
        return f"{path} tells no token ids"
    if fields.get("stream") is not True:
        return "it asks for no stream"
    for key in _ALONE:
        if (fields.get(key) or 1) != 1:
            return f"it asks for several answers (`{key}`)"
    for key, words in _BEYOND.items():
        if fields.get(key) is not None and fields[key] is not False:
            return f"it asks for {words}"
    if not isinstance(fields.get(ARGUMENTS) or {}, Mapping):
        return f"its `{ARGUMENTS}` are no object"
    if fields.get("include_reasoning") is False:
        return "its reasoning is hidden, and its tokens with it"
    if _has_several(fields.get("prompt")):
        return "it has several prompts"
    if _has_media(fields.get("messages")):
        return "its prompt has more than text"
    return ""


def _has_several(prompt: Any) -> bool:
    return isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)


def _has_media(messages: Any) -> bool:
    if not isinstance(messages, list):
        return False
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return any(not (isinstance(part, dict) and "text" in part) for part in parts)


def _ask_for_more(body: bytes, fields: dict[str, Any]) -> bytes:
    """Ask for token ids, and to have it back where its engine is full; leave all else to the byte.

    Of numbers and texts the client has the say.
    """
    ours = {ASK_FOR_IDS: True, ARGUMENTS: {**(fields.get(ARGUMENTS) or {}), HAND_BACK: 1}}
    if fields.keys() & ours.keys():  # which a second field of the name would not change
        return orjson.dumps({**fields, **ours})
    return _OPENING.sub(orjson.dumps(ours)[:-1] + b",", body, 1)
