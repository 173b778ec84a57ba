"""What a client has of a stream, counted in tokens, so that another engine can go on after them.

An engine is asked for the ids of its tokens; the client sees them only if it asked, too. An engine that goes
on answers from the first token (`headrace_engine.contracts.resume_arguments`), so what the client has is left
out by its tokens: no text is cut or compared, and no character can be torn.
"""

from __future__ import annotations

import re
from array import array
from typing import Any

import orjson

from headrace_engine.contracts.resume_arguments import HANDED_BACK

_END = b"\n\n"
_DONE = b"data: [DONE]"
_ERROR = b'data: {"error"'
_IDS = re.compile(rb'"token_ids":\[([\d,]*)\]')
_PROMPT_IDS = re.compile(rb'"prompt_token_ids":\[([\d,]*)\]')
_CREATED = re.compile(rb'"created":\d+')
_FINISHED = b'"finish_reason":"'
_HANDED_BACK = b'"stop_reason":"' + HANDED_BACK.encode() + b'"'
_GIVEN_UP = b'"finish_reason":"abort"'  # by an engine that ends, for its client is here
# Without ids vLLM sends none of these, with which it tells tokens that became no text.
_NOTHING = b'"delta":{},"logprobs":null,"finish_reason":null'


class Journal:
    """What was handed on to one client; `wants_ids`: it asked for token ids itself."""

    def __init__(self, *, wants_ids: bool = False) -> None:
        self.wants_ids = wants_ids
        self.token_ids = array("I")
        self.prompt_tokens = 0
        self.untold = 0  # events before the first token
        self.created = b""  # as the first engine said it
        self.last = b""  # the event in which the answer finished
        self.is_done = False

    @property
    def is_finished(self) -> bool:
        """Whether the client has the whole answer, be it without its usage and the stream's end."""
        return bool(self.last)

    @property
    def is_counted(self) -> bool:
        """Whether what the client has is known in tokens: an old engine tells none, though asked for ids."""
        return bool(self.prompt_tokens) or not (self.untold or self.token_ids)


class Passage:
    """The answer of one engine on its way through a journal to the client."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rest = b""
        self._left = len(journal.token_ids)  # tokens that the client has
        self._untold = journal.untold
        self._is_first = not (journal.untold or self._left)
        self._place = 0
        self.failure = ""
        """Why the rest of the answer is worth nothing; empty while it is not."""
        self.is_handed_back = False
        """Whether the engine has ended it for another to go on with, or itself later."""

    def take(self, data: bytes) -> bytes:
        """Return what of the engine's bytes is new to the client, in whole events."""
        *events, self._rest = (self._rest + data).split(_END)
        new = []
        for event in events:
            if event.startswith(_ERROR) and _is_the_engines(event):
                self.failure = _message(event)
            elif _GIVEN_UP in event:
                self.is_handed_back = _HANDED_BACK in event
                self.failure = "" if self.is_handed_back else "the engine gave the request up"
            elif handed_on := self._pass(event):
                new.append(handed_on)
            if self.failure or self.is_handed_back:
                break
        return b"".join(new)

    def _pass(self, event: bytes) -> bytes:
        journal = self._journal
        found = _IDS.search(event)
        ids = found[1] if found else b""
        if self._place < self._left:
            self._leave_out(ids)
            return b""
        if not ids and self._untold and not self._place:
            self._untold -= 1
            return b""
        if ids:
            journal.token_ids.extend(map(int, ids.split(b",")))
            self._place = self._left = len(journal.token_ids)
        elif not self._place:
            journal.untold += 1
        self._note(event)
        return self._as_asked(event)

    def _leave_out(self, ids: bytes) -> None:
        told = array("I", map(int, ids.split(b","))) if ids else array("I")
        after = self._place + len(told)
        if self._journal.token_ids[self._place : after] != told:
            self.failure = "another engine told other tokens than the client has"
        self._place = after

    def _note(self, event: bytes) -> None:
        journal = self._journal
        if self._is_first and not journal.created and (created := _CREATED.search(event)):
            journal.created = created[0]
        if _FINISHED in event:
            journal.last = event
        elif event == _DONE:
            journal.is_done = True

    def _as_asked(self, event: bytes) -> bytes:
        """Make the event what the first engine would have sent for the request as the client made it."""
        journal = self._journal
        if not self._is_first and journal.created:
            event = _CREATED.sub(journal.created, event, 1)
        if not journal.prompt_tokens and (prompt := _PROMPT_IDS.search(event)):
            journal.prompt_tokens = prompt[1].count(b",") + 1
        if journal.wants_ids:
            return event + _END
        if _NOTHING in event:
            return b""
        event = _IDS.sub(b'"token_ids":null', event, 1)
        return _PROMPT_IDS.sub(b'"prompt_token_ids":null', event, 1) + _END


def ending(journal: Journal, *, with_usage: bool) -> bytes:
    """Return what an engine sends after a finished answer."""
    if journal.is_done:
        return b""
    events = [_usage(journal)] if with_usage else []
    return b"".join(each + _END for each in [*events, _DONE])


def error_event(body: dict[str, Any], *, named: bool) -> bytes:
    """Return how a stream ends that can't go on; `named`: whose events have names."""
    return (b"event: error\n" if named else b"") + b"data: " + orjson.dumps(body) + _END + _DONE + _END


def _usage(journal: Journal) -> bytes:
    told = orjson.loads(journal.last.removeprefix(b"data: "))
    output = len(journal.token_ids)
    usage = {
        "prompt_tokens": journal.prompt_tokens,
        "total_tokens": journal.prompt_tokens + output,
        "completion_tokens": output,
    }
    kept = {key: told[key] for key in ("id", "object", "created", "model") if key in told}
    return b"data: " + orjson.dumps({**kept, "choices": [], "usage": usage})


def _is_the_engines(event: bytes) -> bool:
    """Tell whether an error event says that the engine failed, and not that the request is wrong."""
    error = _error(event)
    return not isinstance(error.get("code"), int) or error["code"] >= 500


def _message(event: bytes) -> str:
    return str(_error(event).get("message") or "the engine failed")


def _error(event: bytes) -> dict[str, Any]:
    try:
        error = orjson.loads(event.removeprefix(b"data: "))["error"]
    except (orjson.JSONDecodeError, KeyError):
        return {}
    return error if isinstance(error, dict) else {}
