"""What a client of a stream gets, put together from its chunks; for comparing one stream with another."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

# What differs from engine to engine: how much of the prompt was cached, and how many tokens were reasoning,
# which vLLM counts by how many came at once.
_OF_THE_ENGINE = {"prompt_tokens_details", "completion_tokens_details"}


class RefusedError(Exception):
    """The engine refused the request, or ended it in mid-stream; the message has its words."""


@dataclass(slots=True)
class Answer:
    """A whole answer."""

    token_ids: list[int] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # by field: `text`, `content`, `tool 0 name`, ...
    logprobs: list[tuple[str, float]] = field(default_factory=list)  # of each token
    finish: tuple[str | None, Any] = (None, None)  # reason and stop reason
    usage: Mapping[str, Any] = field(default_factory=dict)

    def difference(self, other: "Answer", delivered: int) -> str:
        """Name the first part in which `other`, resumed after `delivered` tokens, differs; empty if none."""
        for part in ("token_ids", "texts", "finish", "usage"):
            ours, theirs = getattr(self, part), getattr(other, part)
            if ours != theirs:
                return f"{part}: {ours!r:.200} was to be, {theirs!r:.200} came"
        if len(self.logprobs) != len(other.logprobs) or not _close(
            self.logprobs[delivered:], other.logprobs[delivered:]
        ):
            return f"logprobs: {self.logprobs[delivered:]!r:.200} were to be, {other.logprobs!r:.200} came"
        return ""


async def ask(client: httpx.AsyncClient, url: str, body: Mapping[str, Any]) -> Answer:
    """Ask for a stream with token ids and usage, and read it to its end; raises RefusedError."""
    asked = {**body, "stream": True, "return_token_ids": True, "stream_options": {"include_usage": True}}
    answer = Answer()
    texts: dict[str, list[str]] = {}
    async with client.stream("POST", url, json=asked) as stream:
        if stream.status_code != httpx.codes.OK:
            raise RefusedError((await stream.aread()).decode())
        async for line in stream.aiter_lines():
            if line.startswith("data: {"):
                _take(json.loads(line.removeprefix("data: ")), answer, texts)
    answer.texts = {name: "".join(pieces) for name, pieces in texts.items()}
    return answer


def _take(chunk: dict[str, Any], answer: Answer, texts: dict[str, list[str]]) -> None:
    if "error" in chunk:
        raise RefusedError(str(chunk["error"]))
    if chunk.get("usage"):
        answer.usage = {name: value for name, value in chunk["usage"].items() if name not in _OF_THE_ENGINE}
    for choice in chunk["choices"]:
        answer.token_ids += choice.get("token_ids") or []
        answer.logprobs += _logprobs(choice.get("logprobs") or {})
        if choice.get("finish_reason"):
            answer.finish = choice["finish_reason"], choice.get("stop_reason")
        for name, piece in _pieces(choice):
            if piece:
                texts.setdefault(name, []).append(piece)


def _pieces(choice: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    yield "text", choice.get("text")
    delta = choice.get("delta") or {}
    yield "content", delta.get("content")
    yield "reasoning", delta.get("reasoning")
    for call in delta.get("tool_calls") or []:
        function = call.get("function") or {}
        yield f"tool {call['index']} name", function.get("name")
        yield f"tool {call['index']} arguments", function.get("arguments")


def _logprobs(told: Mapping[str, Any]) -> list[tuple[str, float]]:
    if "content" in told:
        return [(each["token"], each["logprob"]) for each in told["content"] or []]
    return list(zip(told.get("tokens", ()), told.get("token_logprobs", ()), strict=True))


def _close(ours: list[tuple[str, float]], theirs: list[tuple[str, float]]) -> bool:
    return all(
        token == other and abs(logprob - another) < 1e-4  # kernels add up in another order
        for (token, logprob), (other, another) in zip(ours, theirs, strict=True)
    )
