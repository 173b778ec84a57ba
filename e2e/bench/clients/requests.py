"""Requests that a client may send to chat, completions and responses, over the whole space of their fields.

Most are nearly as they should be, so that they come to the engine: a prompt, few tokens, and up to
`MOST_FIELDS` fields more, whose values mean something there, or are any of the field's type. Made by
hypothesis; the same seed gives the same requests.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from e2e.bench.clients.fields import ENDPOINTS, LENGTHS, NEEDS, Endpoint, optional_fields
from e2e.bench.clients.values import drawn

MODEL = "chat"
MOST_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Request:
    """One request: the path below `/v1`, the body, and after how many events a client of a stream leaves."""

    path: str
    body: dict[str, Any]
    leaves_after: int | None = None

    def __str__(self) -> str:
        text = json.dumps(self.body)
        return f"{self.path} {text if len(text) < 600 else text[:600] + '…'}"


def made(count: int, seed: int) -> list[Request]:
    """Make so many requests, of all endpoints in turn; imports vLLM.

    An endpoint's fields take turns, so that none is sent much more often than another.
    """
    random = Random(seed)
    turns = [field_groups(endpoint, random) for endpoint in ENDPOINTS]
    return [
        drawn(
            request(ENDPOINTS[number % len(turns)], next(turns[number % len(turns)])), random.getrandbits(64)
        )
        for number in range(count)
    ]


def field_groups(endpoint: Endpoint, random: Random) -> Iterator[list[str]]:
    """Yield all fields again and again, in another order each time, one to `MOST_FIELDS` at once."""
    while True:
        names = sorted(optional_fields(endpoint))
        random.shuffle(names)
        while names:
            size = random.randint(1, MOST_FIELDS)
            yield names[:size]
            names = names[size:]


def request(endpoint: Endpoint, names: Sequence[str]) -> st.SearchStrategy[Request]:
    """Make a request to this endpoint with these fields; half of them streams."""
    known = optional_fields(endpoint)
    plain = {"model": st.just(MODEL), endpoint.prompt: endpoint.prompts, endpoint.length: LENGTHS}
    needed = [other for name in names for other in NEEDS.get(name, {}).items() if other[0] in known]
    given = plain | {"stream": st.booleans()} | dict(needed) | {name: known[name] for name in names}
    leaves = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 3))
    return st.builds(Request, st.just(endpoint.path), st.fixed_dictionaries(given), leaves)


def _asking(prompt: str, **fields: Any) -> Iterator[Request]:
    chat: Mapping[str, Any] = {"messages": [{"role": "user", "content": prompt}]}
    for path, given in (("/chat/completions", chat), ("/completions", {"prompt": prompt})):
        own = {**fields, "logprobs": True} if path == "/chat/completions" and "logprobs" in fields else fields
        yield Request(path, {"model": MODEL, "max_tokens": 4, **given, **own})


DEADLY: Sequence[Request] = (
    *_asking("the mill", logprobs=3),  # compiles a kernel
    *_asking("the mill " * 120, seed=7),  # a prompt of several steps, whose first samples are thrown away
)
"""What has ended an engine of this image before; sent first under each policy."""
