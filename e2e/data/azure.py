"""The Azure 2023 conversation trace, cut and scaled to a model that a laptop's CPU can serve.

Arrival times stay as recorded: a window of the trace, thinned by taking every n-th request, so that bursts
stay bursts. Lengths shrink linearly, each by its own divisor, and are capped; below the cap the mix of short
and long requests stays what it was. SOURCES.md names the source and its licence.
"""

import csv
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

CONVERSATION = Path(__file__).with_name("azure2023_conversation.csv")


@dataclass(frozen=True, slots=True)
class Request:
    """One recorded request: `at` in seconds since the trace's (or the window's) start, lengths in tokens."""

    at: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Scale:
    """How lengths shrink: `length / divisor`, rounded up, at most the limit, at least one token."""

    prompt_divisor: float
    output_divisor: float
    prompt_limit: int
    output_limit: int

    def __post_init__(self) -> None:
        if min(self.prompt_divisor, self.output_divisor, self.prompt_limit, self.output_limit) <= 0:
            raise ValueError(f"divisors and limits must be above zero: {self}")

    def __call__(self, request: Request) -> Request:
        """The request with its lengths scaled."""
        return Request(
            at=request.at,
            prompt_tokens=_shrink(request.prompt_tokens, self.prompt_divisor, self.prompt_limit),
            output_tokens=_shrink(request.output_tokens, self.output_divisor, self.output_limit),
        )


def load(path: Path = CONVERSATION) -> list[Request]:
    """Read a trace in Azure's format, in order of arrival; the first request arrives at 0."""
    with path.open(newline="") as file:
        rows = [
            (_seconds(r["TIMESTAMP"]), r["ContextTokens"], r["GeneratedTokens"]) for r in csv.DictReader(file)
        ]
    start = min(at for at, _, _ in rows)
    return sorted(
        (Request(at - start, int(prompt), int(output)) for at, prompt, output in rows),
        key=lambda request: request.at,
    )


def window(requests: Iterable[Request], start: float, seconds: float) -> list[Request]:
    """Those that arrive in [start, start + seconds), with times counted from `start`."""
    return [
        Request(request.at - start, request.prompt_tokens, request.output_tokens)
        for request in requests
        if start <= request.at < start + seconds
    ]


def thin(requests: Iterable[Request], every: int, offset: int = 0) -> Iterator[Request]:
    """Every n-th request from `offset` on; different offsets below `every` share no request."""
    return itertools.islice(requests, offset, None, every)


def _shrink(length: int, divisor: float, limit: int) -> int:
    return max(1, min(limit, math.ceil(length / divisor)))


def _seconds(timestamp: str) -> float:
    """Unix seconds of `2023-11-16 18:15:46.6805900`: seven decimals, one more than Python reads."""
    return datetime.fromisoformat(timestamp[:26] + "+00:00").timestamp()
