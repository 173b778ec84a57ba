"""A request that a picker sent to an engine, and how one picker tells another of it: in a datagram."""

from dataclasses import dataclass

import orjson

from headrace_gateway.balancers.endpoint import Work
from headrace_gateway.pick.prefix_index import HASH_BYTES, Chunks, pack, unpack
from headrace_gateway.pick.tokens import MOST_PROMPTS

VERSION = 1
MOST = 1e12  # of anything that is counted, but for requests
MOST_BYTES = 60_000  # of a datagram; the end of a longer prompt is not told of


@dataclass(frozen=True, slots=True)
class Placement:
    """A request that went to the engine at `address`; `chunks` is its beginning if prefixes count."""

    address: str  # IP
    work: Work
    chunks: Chunks


def encode(service: str, placement: Placement) -> bytes:
    """Write a placement of `service` (`namespace/name`): a line of JSON, then the hashes of its chunks."""
    work = placement.work
    counts = (
        work.requests,
        work.copies,
        work.tokens,
        work.uncached_tokens(placement.address),
        work.text_bytes,
        work.counted_tokens,
        work.media,
    )
    head = orjson.dumps((VERSION, service, placement.address, *counts)) + b"\n"
    return head + pack(placement.chunks[: (MOST_BYTES - len(head)) // HASH_BYTES])


def decode(datagram: bytes) -> tuple[str, Placement]:
    """Read a service and a placement; raises ValueError if no picker can have written it."""
    head, _, hashes = datagram.partition(b"\n")
    try:
        version, *told = orjson.loads(head)
        if version != VERSION:
            raise ValueError(f"it is of version {version}, not {VERSION}")
        service, address, *counts = told
        requests, copies, tokens, uncached, text_bytes, counted_tokens, media = counts
    except TypeError as error:
        raise ValueError("it is no list") from error
    named = isinstance(service, str) and isinstance(address, str)
    counted = all(type(each) in {int, float} and 0 <= each <= MOST for each in counts)
    if not named or not counted:
        raise ValueError("it names no engine, or counts what cannot be counted")
    if not (type(requests) is type(copies) is int and 1 <= copies <= requests <= MOST_PROMPTS):
        raise ValueError("no client can ask for so many answers")
    cached = {address: tokens - uncached} if uncached < tokens else {}
    work = Work(requests, tokens, text_bytes, counted_tokens, media, copies, cached)
    return service, Placement(address, work, unpack(hashes))
