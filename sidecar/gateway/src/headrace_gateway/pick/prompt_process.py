"""`python -m headrace_gateway.pick.prompt_process`: reads bodies from stdin, tells their prompts on stdout.

Each body, and each answer, comes behind its length in 8 bytes. An answer is a JSON object and, behind its own
length, the hashes of the text that the prompt begins with: to hand on the text would hold up the picker.
"""

from __future__ import annotations

import sys
from typing import BinaryIO

import orjson

from headrace_gateway.pick.prefix_index import Beginning, pack, unpack
from headrace_gateway.pick.tokens import BadRequestError, Prompt, read_prompt

LENGTH = 8  # bytes


def main() -> None:
    """Answer until stdin ends."""
    bodies, answers = sys.stdin.buffer, sys.stdout.buffer
    while body := _next(bodies):
        for part in _answer(body):
            answers.write(framed(part))
        answers.flush()


def framed(part: bytes) -> bytes:
    """Put the length before what is sent."""
    return len(part).to_bytes(LENGTH) + part


def to_prompt(answer: bytes, hashes: bytes) -> Prompt:
    """Read the two parts of an answer; raises BadRequestError if that is what it says."""
    told = orjson.loads(answer)
    if "error" in told:
        raise BadRequestError(told["error"], told["param"])
    return Prompt(**told["prompt"], cut=Beginning(unpack(hashes), told["beginning_bytes"]))


def _next(bodies: BinaryIO) -> bytes:
    return bodies.read(int.from_bytes(bodies.read(LENGTH)))


def _answer(body: bytes) -> tuple[bytes, bytes]:
    try:
        prompt = read_prompt(body)
    except BadRequestError as error:
        return orjson.dumps({"error": str(error), "param": error.param}), b""
    fields = {
        "requests": prompt.requests,
        "text_bytes": prompt.text_bytes,
        "counted_tokens": prompt.counted_tokens,
        "model": prompt.model,
        "media": prompt.media,
        "resumed": prompt.resumed,
        "answered": prompt.answered,
        "choices": prompt.choices,
    }
    chunks, size = prompt.beginning()
    return orjson.dumps({"prompt": fields, "beginning_bytes": size}), pack(chunks)


if __name__ == "__main__":
    main()
