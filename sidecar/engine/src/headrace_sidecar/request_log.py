"""The finished-request log: when the last requests came and how long they were and took, as JSON lines.

`GET :9400/requests` gives it, in order of arrival; `headrace simulate --trace` reads it. It holds lengths and
times, no text. It lies in memory, so it starts with this process and keeps the last `KEPT` requests; those
that were aborted are not in it. Logs of several engines are merged by `sort`, since each line begins with the
arrival time in unix seconds.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator

from headrace_engine.control.records import FinishedRequest

KEPT = 50_000  # requests; about 4 MB
PORTION = 500  # lines made at a time, in a few milliseconds: load reports must not wait for a log

# Big-endian with the arrival first: the bytes of times after 1970 sort like the times.
_LINE = struct.Struct(">dIIdd")


class RequestLog:
    """The last requests that finished, packed."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lines: deque[bytes] = deque(maxlen=kept)

    def add(self, requests: Iterable[FinishedRequest]) -> None:
        """Keep requests that finished; the oldest are dropped for them."""
        for each in requests:
            arrived = max(0.0, each.time - each.e2e)
            self._lines.append(
                _LINE.pack(arrived, each.prompt_tokens, each.output_tokens, each.ttft, each.e2e)
            )

    def portions(self) -> Iterator[str]:
        """Yield the log as it is now, in order of arrival, `PORTION` lines at a time."""
        lines = sorted(self._lines)
        for first in range(0, len(lines), PORTION):
            yield "".join(map(_text, lines[first : first + PORTION]))


def _text(line: bytes) -> str:
    arrived, prompt, output, ttft, e2e = _LINE.unpack(line)
    return (
        f'{{"arrival_time": {arrived:.6f}, "prompt_tokens": {prompt}, "output_tokens": {output}, '
        f'"ttft": {ttft:.6f}, "e2e": {e2e:.6f}}}\n'
    )
