"""How many prompt tokens a request will have, without a tokenizer.

The prompt's bytes (all text of `messages`, `prompt` or `input`) times tokens per byte. That ratio is
learned per service: engines report the prompt tokens that arrived, the picker knows the bytes it sent for
them. It so takes in the tokenizer, the language and the chat template. What else a message has (pictures,
sounds, files) counts by the piece, with as many tokens as pieces had on average beyond their requests' text.
Prompts given as token ids are counted.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from headrace_engine.contracts import resume_arguments
from headrace_gateway.balancers.endpoint import Landed, Work
from headrace_gateway.pick.prefix_index import Beginning, cut_beginning

INNER = "kv_transfer_params"  # engines say it to each other: where to fetch KV from
ARGUMENTS = "vllm_xargs"  # clients' wishes, and what the gateway asks to go on after
EMBEDDED = "prompt_embeds"  # prompts as vectors, whose lengths cannot be seen
FIRST_GUESS = 0.25  # tokens per byte of English text with common tokenizers
MEMORY = 0.98  # weight that a sample keeps per later sample: about the last fifty count
FEWEST, MOST = 0.02, 8.0  # tokens per byte that a tokenizer can give
MOST_MESSAGES = 8192  # a chat of years; a chat template takes longer with them than the picker
TEMPLATE_TOKENS = 1024  # of a chat template come on top
MEDIA_FIRST_GUESS = 1000.0  # tokens of a picture of a megapixel, about
MEDIA_MOST = 131_072  # tokens of one: more comes of something else
MOST_PROMPTS = 2048  # of one request, times choices; OpenAI's own limit for embeddings
_SPOKEN = ("content", "name", "arguments", "output")  # of a message, a tool's call, and its result
_SILENT = {"tool_use", "tool_result", "thinking", "redacted_thinking"}  # parts that are no pictures and such
# Of what is scored: each of the first with each of the second, or one with one.
_QUERIES = ("query", "queries", "text_1", "data_1")
_DOCUMENTS = ("documents", "items", "text_2", "data_2")


class BadRequestError(ValueError):
    """The request cannot be served by any engine; the message tells why, and `param` the field to blame."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Prompt:
    """The size of a request: bytes of text, tokens where they came as ids, and pictures, sounds and files.

    These (`media`) and the others are sums over the `requests` that an engine makes of it: `choices` of each
    of its prompts.

    `text` is what the prompt begins with, for telling whether an engine has met it before: roles and contents
    one after the other up to the first that is more than text, or token ids as four bytes each; empty where a
    request has several prompts. vLLM shares no KV between requests of different `cache_salt`: that is first.
    Instead of it there may be what is made of it: `cut`, and how long it is.
    `model` is the one that the body names; empty if it names none. `resumed`: it goes on after `answered`
    tokens of its answer, which are counted tokens, too.
    """

    requests: int
    text_bytes: int
    counted_tokens: int
    text: bytes = field(default=b"", compare=False, repr=False)
    model: str = field(default="", compare=False)
    media: int = 0
    resumed: bool = False
    answered: int = 0
    choices: int = 1
    cut: Beginning | None = field(default=None, compare=False, repr=False)

    def beginning(self) -> Beginning:
        """Return what tells whether an engine has met the prompt's beginning before."""
        return self.cut or cut_beginning(self.text)


@dataclass(slots=True)
class TokenRate:
    """Learned tokens per byte, and for each of `media`: sums over landed requests, older ones fading."""

    tokens: float = 0.0
    text_bytes: float = 0.0
    media_tokens: float = 0.0
    media: float = 0.0

    def value(self) -> float:
        """Return the learned tokens per byte of prompt text."""
        return self.tokens / self.text_bytes if self.text_bytes > 0 else FIRST_GUESS

    def of_media(self) -> float:
        """Return the learned tokens of a picture, a sound or a file."""
        return self.media_tokens / self.media if self.media > 0 else MEDIA_FIRST_GUESS

    def learn(self, landed: Landed) -> None:
        """Take in requests whose bytes and tokens are both known.

        A booking that never landed makes the next arrivals look like other requests than they are; what no
        tokenizer gives is such a mix-up, and says nothing.
        """
        tokens = landed.arrived_tokens - landed.counted_tokens
        if landed.media:
            beyond = tokens - landed.text_bytes * self.value()
            if 0 < beyond <= MEDIA_MOST * landed.media:
                self.media_tokens = self.media_tokens * MEMORY + beyond
                self.media = self.media * MEMORY + landed.media
            return
        likely = FEWEST * landed.text_bytes <= tokens <= MOST * landed.text_bytes + TEMPLATE_TOKENS
        if landed.text_bytes <= 0 or tokens <= 0 or not likely:
            return
        self.tokens = self.tokens * MEMORY + tokens
        self.text_bytes = self.text_bytes * MEMORY + landed.text_bytes

    def work(self, prompt: Prompt) -> Work:
        """Turn the prompt into work for an engine."""
        tokens = prompt.counted_tokens + prompt.text_bytes * self.value()
        if prompt.media:
            tokens += prompt.media * self.of_media()
        return Work(prompt.requests, max(tokens, 1.0), prompt.text_bytes, prompt.counted_tokens, prompt.media)


def read_prompt(body: bytes) -> Prompt:
    """Measure the body of a request to an engine; raises BadRequestError."""
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequestError(f"the request body is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise BadRequestError("the request body is not a JSON object")
    if request.get(INNER) is not None:
        raise BadRequestError(f"`{INNER}` is not for clients", INNER)
    _refuse_many(request)
    prompt, model, more = _measure(request), request.get("model"), request.get(ARGUMENTS)
    if isinstance(more, dict) and not more.keys().isdisjoint(resume_arguments.NAMES):
        answered = _length(more.get(resume_arguments.RESUME_IDS))
        counted = prompt.counted_tokens + answered
        prompt = replace(prompt, counted_tokens=counted, resumed=True, answered=answered)
    return replace(prompt, model=model) if isinstance(model, str) else prompt


def _length(given: Any) -> int:
    return len(given) if isinstance(given, list) else 0


def _measure(request: dict[str, Any]) -> Prompt:
    given = request.get
    if given("messages") is not None:
        return _chat(request, "messages")
    if given("prompt") is not None:
        return _prompts(request, "prompt")
    if isinstance(given("input"), list) and _are(dict, request["input"]):
        return _chat(request, "input")
    if isinstance(given("input"), str) and (given("instructions") or given("tools")):
        return _chat({**request, "input": [{"role": "user", "content": request["input"]}]}, "input")
    if given("input") is not None:
        return _prompts(request, "input")
    if given(EMBEDDED) is not None:
        prompts = len(request[EMBEDDED]) if isinstance(request[EMBEDDED], list) else 1
        choices = _choices(request)
        return Prompt(max(prompts, 1) * choices, 0, 0, choices=choices)
    if documents := _given(request, _DOCUMENTS):
        return _pairs(_given(request, _QUERIES), documents)
    raise BadRequestError("the request has no prompt: give `messages`, `prompt` or `input`")


def _refuse_many(request: dict[str, Any]) -> None:
    """Refuse several prompts in any field that an engine could take them from: it depends on the path."""
    choices = _choices(request)
    for key in ("prompt", "input", EMBEDDED, *_QUERIES, *_DOCUMENTS):
        given = request.get(key)
        if (
            isinstance(given, list)
            and len(given) * choices > MOST_PROMPTS
            and not (_are(int, given) or _are(dict, given))  # one prompt
        ):
            raise BadRequestError(
                f"`{key}` asks for over {MOST_PROMPTS} answers: send fewer prompts at once", key
            )


def _chat(request: dict[str, Any], key: str) -> Prompt:
    messages = request[key]
    if not isinstance(messages, list) or not messages or not _are(dict, messages):
        raise BadRequestError(f"`{key}` is not a list of messages", key)
    if len(messages) > MOST_MESSAGES:
        raise BadRequestError(f"`{key}` has {len(messages)} messages: send {MOST_MESSAGES} at most", key)
    tools = _written(request.get("tools"), "tools")
    texts = [_text(request.get("instructions") or request.get("system"))]
    text = [_salt(request), tools, texts[0]]
    media = 0  # while there are none, what came before is text, all of it in `text`
    for message in messages:
        texts.append(_said(message))
        media += sum(_media(message.get(key)) for key in _SPOKEN)
        if not media:
            text += (_bytes(message.get("role")), texts[-1])
    size = len(tools) + sum(map(len, texts))
    choices = _choices(request)
    return Prompt(choices, size * choices, 0, b"\0".join(text), media=media * choices, choices=choices)


def _said(message: dict[str, Any]) -> bytes:
    """Return a message's texts, and the tools that it calls."""
    parts, calls = [message], message.get("tool_calls")
    if isinstance(calls, list):
        called = [call.get("function") for call in calls if isinstance(call, dict)]
        parts += [function for function in called if isinstance(function, dict)]
    return b"".join(_text(part.get(key)) for part in parts for key in _SPOKEN)


def _text(content: Any, *, in_tool: bool = False) -> bytes:
    """Return a text, or the texts among a message's parts; `in_tool`: what a tool answered."""
    if isinstance(content, list):
        return b"".join(_text_of_part(part, in_tool=in_tool) for part in content if isinstance(part, dict))
    return _bytes(content)


def _text_of_part(part: dict[str, Any], *, in_tool: bool) -> bytes:
    match part.get("type"):
        case "tool_use":
            return _bytes(part.get("name")) + _written(part.get("input"), "messages")
        case "tool_result" if not in_tool:
            return _text(part.get("content"), in_tool=True)
        case "thinking":
            return _bytes(part.get("thinking"))
        case _:
            return _bytes(part.get("text"))


def _media(content: Any, *, in_tool: bool = False) -> int:
    """Count the parts of a message that are no text: pictures, sounds, files."""
    if not isinstance(content, list):
        return 0
    count = 0
    for part in content:
        if not isinstance(part, dict):
            count += 1
        elif part.get("type") == "tool_result" and not in_tool:
            count += _media(part.get("content"), in_tool=True)
        else:
            count += not (isinstance(part.get("text"), str) or part.get("type") in _SILENT)
    return count


def _salt(request: dict[str, Any]) -> bytes:
    return _bytes(request.get("cache_salt"))


def _bytes(value: Any) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b""


def _written(value: Any, field: str) -> bytes:
    """Return what is no text as chat templates write it into the prompt: about as it came in the field."""
    try:
        return orjson.dumps(value) if value else b""
    except orjson.JSONEncodeError:
        raise BadRequestError(f"`{field}` is nested too deeply", field) from None


def _prompts(request: dict[str, Any], key: str) -> Prompt:
    """Measure a text, a list of token ids, or a list of either."""
    given = request[key]
    if isinstance(given, str) or (isinstance(given, list) and given and _are(int, given)):
        given = [given]
    if not isinstance(given, list) or not given:
        raise BadRequestError(f"`{key}` is neither text, nor token ids, nor a list of those", key)
    choices = _choices(request)
    text_bytes = counted = 0
    text = b""
    for prompt in given:
        if isinstance(prompt, str):
            text = _bytes(prompt)
            text_bytes += len(text)
        elif isinstance(prompt, list) and _are(int, prompt):
            counted += len(prompt)
            text = _ids(prompt) if len(given) == 1 else b""
        else:
            raise BadRequestError(f"`{key}` is neither text, nor token ids, nor a list of those", key)
    beginning = b"\0".join((_salt(request), text)) if len(given) == 1 and text else b""
    return Prompt(len(given) * choices, text_bytes * choices, counted * choices, beginning, choices=choices)


def _given(request: dict[str, Any], keys: Iterable[str]) -> list[Any]:
    """Return what one of the fields lists; one thing is a list of one."""
    found: Any = next((request[key] for key in keys if request.get(key) is not None), [])
    return found if isinstance(found, list) else [found]


def _pairs(queries: list[Any], documents: list[Any]) -> Prompt:
    """Measure what is scored: one query with each document, or each with its own."""
    asked = sum(map(len, map(_scored, queries))) * (len(documents) if len(queries) == 1 else 1)
    return Prompt(len(documents), asked + sum(map(len, map(_scored, documents))), 0)


def _scored(text: Any) -> bytes:
    return _text(text.get("content")) if isinstance(text, dict) else _text(text)


def _ids(prompt: list[int]) -> bytes:
    try:
        return array("I", prompt).tobytes()
    except OverflowError:  # no vocabulary has such ids; vLLM will say so
        return b""


def _choices(request: dict[str, Any]) -> int:
    choices = request.get("n")  # vLLM takes 2.0 for 2, and "2"
    if isinstance(choices, str):
        raise BadRequestError("`n` is a text: give a number", "n")
    return int(min(choices, MOST_PROMPTS)) if isinstance(choices, int | float) and choices >= 1 else 1


def _are(kind: type, items: list[Any]) -> bool:
    return set(map(type, items)) <= {kind}
