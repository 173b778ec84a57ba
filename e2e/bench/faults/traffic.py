"""Clients of a campaign: steady requests to every service, half of them streamed, each recorded.

Open loop: a request is sent when it is due, whether or not earlier ones are done, on a connection of its own,
so that a broken connection is the fault of one request only. Nothing is repeated.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

from e2e.bench.faults.cases import SERVICES
from e2e.bench.faults.figures import Record
from e2e.demo.replay import prompt

DEADLINE = 60.0  # seconds; a request that takes longer has failed
PROMPT_TOKENS = 40
SHORTEST, LONGEST = 10, 120  # tokens of an answer


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a client to a service."""

    service: str
    tokens: int
    streamed: bool
    text_seed: str


@dataclass(slots=True)
class Load:
    """What was sent to the gateway at `url` and what came of it."""

    url: str
    records: list[Record] = field(default_factory=list)

    async def run(self, per_second: float, seed: int, stop: asyncio.Event) -> None:
        """Send until `stop` is set, then wait for the last answers."""
        began, plan = time.monotonic(), asks(seed)
        async with self._client() as client, asyncio.TaskGroup() as tasks:
            for number in itertools.count():
                try:
                    async with asyncio.timeout_at(began + number / per_second):
                        await stop.wait()
                except TimeoutError:
                    tasks.create_task(self.send(client, next(plan)))
                else:
                    return

    async def send(self, client: httpx.AsyncClient, ask: Ask) -> Record:
        """Send one request; its record is also kept."""
        sent = time.monotonic()
        status, error = None, ""
        try:
            async with client.stream("POST", "/v1/completions", json=request_body(ask)) as response:
                status = response.status_code
                text = (await response.aread()).decode()
            error = complaint(ask, status, text)
        except httpx.HTTPError as broken:
            error = f"{type(broken).__name__}: {broken}"
        record = Record(ask.service, ask.streamed, sent, time.monotonic(), status, error)
        self.records.append(record)
        return record

    def _client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_keepalive_connections=0)
        return httpx.AsyncClient(base_url=self.url, timeout=DEADLINE, limits=limits, trust_env=False)


def asks(seed: int) -> Iterator[Ask]:
    """Make requests to the services in turn; lengths and ways by the seed, without an end."""
    source = random.Random(seed)
    for number, service in enumerate(itertools.cycle(SERVICES)):
        tokens = source.randint(SHORTEST, LONGEST)
        yield Ask(service, tokens, source.random() < 0.5, f"faults-{seed}-{number}")


def complaint(ask: Ask, status: int, text: str) -> str:
    """Say what is wrong with a whole answer; empty if nothing is."""
    try:
        if status != 200:
            error = json.loads(text)["error"]
            return f"HTTP {status} {error['code']}: {error['message']}"
        if not ask.streamed:
            return _count(json.loads(text)["usage"]["completion_tokens"], ask)
        events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        if events[-1:] != ["[DONE]"]:
            return "the stream ended early"
        choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
        return _count(sum(len(choice.get("token_ids") or ()) for choice in choices), ask)
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}, not an answer of OpenAI's API: {text[-200:]}"


def _count(tokens: int, ask: Ask) -> str:
    return "" if tokens == ask.tokens else f"{tokens} of {ask.tokens} tokens came"


def request_body(ask: Ask) -> dict[str, object]:
    """Make the body for `/v1/completions`; it asks for the tokens themselves, which `complaint` counts."""
    return {
        "model": ask.service,
        "prompt": prompt(ask.text_seed, PROMPT_TOKENS),
        "max_tokens": ask.tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": ask.streamed,
        "return_token_ids": True,
    }
