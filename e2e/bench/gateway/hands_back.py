"""Engines that hand every stream back once, after 1,000 tokens, and have no room until all came back."""

from dataclasses import dataclass, replace

import orjson

from e2e.bench.gateway.http1 import ServerConnection
from headrace_engine.contracts import LoadReport
from headrace_engine.contracts.resume_arguments import HAND_BACK, HANDED_BACK, RESUME_IDS

PROMPT = "word " * 1000
_CHUNK, _CHUNKS = 50, 20  # tokens of an event of an answer, and such events
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b"


@dataclass(slots=True)
class HandsBack:
    """What the engines do together. `streams`: how many come back before there is room."""

    streams: int
    handed_back: int = 0

    def respond(self, connection: ServerConnection, head: bytes, body: bytes) -> None:
        """Answer at once; who may go on elsewhere and has not done so yet is handed back."""
        asked = {} if head.startswith(b"GET ") else orjson.loads(body)
        arguments = asked.get("vllm_xargs", {})
        hands_back = HAND_BACK in arguments and RESUME_IDS not in arguments
        self.handed_back += hands_back
        answer = _HANDED_BACK if hands_back else _WHOLE
        if connection.transport is not None and not connection.transport.is_closing():
            connection.transport.write(_HEAD % (len(answer), answer))

    def reported(self, report: LoadReport) -> LoadReport:
        """Return an idle engine's report, with or without room."""
        return report if self.handed_back >= self.streams else replace(report, waiting=1)


def _event(delta: dict[str, str], **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None, **more}
    whole = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "chat", "choices": [choice]}
    return b"data: " + orjson.dumps(whole) + b"\n\n"


def _answer(**end: object) -> bytes:
    events = [
        _event({"content": " word" * _CHUNK}, token_ids=list(range(number * _CHUNK, (number + 1) * _CHUNK)))
        for number in range(_CHUNKS)
    ]
    return b"".join([*events, _event({}, **end), b"data: [DONE]\n\n"])


_WHOLE = _answer(finish_reason="length")
_HANDED_BACK = _answer(finish_reason="abort", stop_reason=HANDED_BACK)
