"""An open-loop client: sends each request when the trace says, whether or not earlier ones are done.

Requests go to the gateway as streaming OpenAI completions and ask for exactly the recorded number of tokens.
The tiny model reads one byte as one token, so a prompt of n letters has n tokens; each text differs from all
others, so that no prefix cache helps one half of a comparison. A request that fails is recorded and never
repeated: a repeat would hide what the gateway did.
"""

import asyncio
import dataclasses
import json
import random
import string
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from e2e.demo.metrics import Sample, sample

DEADLINE = 120.0  # seconds; by default a request older than this is given up


@dataclass(frozen=True, slots=True)
class Call:
    """One request of the plan: when (seconds from the start), for which service, how long, and which text."""

    at: float
    service: str
    prompt_tokens: int
    output_tokens: int
    text_seed: str


Length = Callable[[Call], Mapping[str, Any]]
"""Fields of a request that make its answer as long as the call says."""


def exactly(call: Call) -> dict[str, Any]:
    """Ask for so many tokens, which tells the engine how long the answer will be."""
    return {"max_tokens": call.output_tokens, "ignore_eos": True}


@dataclass(slots=True)
class Progress:
    """What has happened so far; the live table reads it while the replay writes it."""

    total: int = 0
    samples: list[Sample] = field(default_factory=list)
    in_flight: Counter[str] = field(default_factory=Counter)


async def replay(
    url: str,
    calls: Iterable[Call],
    progress: Progress,
    length: Length = exactly,
    *,
    deadline: float = DEADLINE,
) -> list[Sample]:
    """Send all calls to the gateway at `url`; returns when the last answer is there.

    One sample per call, in the order of their times; `length` says how many tokens to generate, `deadline`
    after how many seconds a request is given up.
    """
    plan = sorted(calls, key=lambda call: call.at)
    progress.total += len(plan)
    start = time.monotonic()
    async with (
        aiohttp.ClientSession(
            url,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=deadline),
        ) as session,
        asyncio.TaskGroup() as tasks,
    ):
        sent = []
        for call in plan:
            await asyncio.sleep(start + call.at - time.monotonic())
            tokens = _tokens(session, call, length(call))
            sent.append(tasks.create_task(_record(call, tokens, start, progress)))
    return [task.result() for task in sent]


async def _record(call: Call, tokens: AsyncIterator[float], start: float, progress: Progress) -> Sample:
    progress.in_flight[call.service] += 1
    sent = time.monotonic()
    try:
        times = [at async for at in tokens]
        result = sample(call.service, sent - start, [at - start for at in times])
    except (aiohttp.ClientError, TimeoutError, ReplyError) as error:
        result = Sample(call.service, sent - start, error=f"{type(error).__name__}: {error}".rstrip(": "))
    finally:
        progress.in_flight[call.service] -= 1
    result = dataclasses.replace(result, sent=call.at)
    progress.samples.append(result)
    return result


class ReplyError(Exception):
    """The gateway refused the request, or its answer ended early."""


async def _tokens(
    session: aiohttp.ClientSession, call: Call, length: Mapping[str, Any]
) -> AsyncIterator[float]:
    """Yield the time of each token as it comes; raises ReplyError unless exactly those asked for come."""
    body = {
        "model": call.service,
        "prompt": prompt(call.text_seed, call.prompt_tokens),
        **length,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
    }
    received = 0
    async with session.post("/v1/completions", json=body) as response:
        if response.status != 200:
            raise ReplyError(f"HTTP {response.status}: {(await response.text())[:200]}")
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            for _ in range(_new_tokens(line)):
                received += 1
                yield now
    if received != call.output_tokens:
        raise ReplyError(f"{received} of {call.output_tokens} tokens came")


def _new_tokens(line: bytes) -> int:
    event = json.loads(line.removeprefix(b"data: "))
    if "error" in event:
        raise ReplyError(str(event["error"])[:200])
    return sum(len(choice.get("token_ids") or ()) for choice in event["choices"])


def prompt(seed: str, tokens: int) -> str:
    """Make reproducible letters, one per token."""
    return "".join(random.Random(seed).choices(string.ascii_lowercase + " ", k=tokens))
