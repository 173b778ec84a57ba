"""Which streams had better go on at another engine: of one where requests wait, or whose tokens come slowly.

Pickers know how many, and relays which. What max-min offload is to batches [SCLS 4.4], for streams that are
under way; the rules are ours. A stream that moves makes its new engine compute all that it has so far, so
none moves but to an engine with KV to spare at which nobody waits, and a slow engine hands over a small part
each time: what that changes is to show first.
"""

from collections.abc import Collection, Mapping
from heapq import nsmallest
from typing import Literal, NamedTuple, TypeVar

from headrace_gateway.balancers.endpoint import Endpoint
from headrace_gateway.balancers.waits import DEFAULT_BLOCK_SIZE

SPARE = 0.1  # of KV, over what is waiting or on its way: else new requests soon wait for what moved
SLOWER = 1.25  # times another engine's step
SLOWER_SECONDS = 0.001  # by which its step is longer, at least
PART = 0.05  # of a slow engine's streams, each time

MOST_AT_ONCE = 32  # streams of an engine, each time: new requests wait while their prompts are computed
WAITING_SECONDS = 1.0  # without a token: the stream waits, or has been preempted
LEAST_HERE = 32  # tokens from its engine, before a stream that runs moves on: it has had a pause already

Key = TypeVar("Key")


class Surplus(NamedTuple):
    """What an engine shall hand over: the share (over 0, at most 1) of its streams, and of which."""

    share: float
    of: Literal["Waiting", "Running"]


class Progress(NamedTuple):
    """How far a stream is.

    `tokens`: prompt and answer so far, which another engine would have to compute. `here`: tokens that its
    engine delivered. `heard_at`: when the last of them came, or the engine was asked; seconds.
    """

    tokens: int
    here: int
    heard_at: float


def surpluses(endpoints: Collection[Endpoint]) -> dict[str, Surplus]:
    """Return by address what engines that report shall hand over; those that keep all are left out."""
    steps = _step_seconds(endpoints)
    with_room = sorted((steps[each.address], each.address) for each in endpoints if has_room(each))[:2]
    found = {}
    for endpoint in endpoints:
        held = endpoint.held_requests()
        others = [seconds for seconds, address in with_room if address != endpoint.address]
        if endpoint.report is None or not (others and held):
            continue
        least, own = others[0], steps[endpoint.address]
        if endpoint.report.waiting:
            found[endpoint.address] = Surplus(min(1.0, endpoint.report.waiting / held), "Waiting")
        elif held > 1 and own > SLOWER * least and own - least > SLOWER_SECONDS:
            found[endpoint.address] = Surplus(PART, "Running")
    return found


def has_room(endpoint: Endpoint) -> bool:
    """Tell whether an engine could take up streams: nobody waits there, and KV is to spare."""
    report = endpoint.report
    if report is None or report.waiting:
        return False
    booked_blocks = endpoint.booked_tokens / (report.block_size or DEFAULT_BLOCK_SIZE)
    return -endpoint.missing_blocks - booked_blocks > SPARE * report.total_kv_blocks


def _step_seconds(endpoints: Collection[Endpoint]) -> dict[str, float]:
    """Return by address how long an engine's steps take; who has done none is taken for twice as fast."""
    told = {each.address: each.report.step_seconds for each in endpoints if each.report is not None}
    unknown = min((seconds for seconds in told.values() if seconds), default=0.0) / 2
    return {address: seconds or unknown for address, seconds in told.items()}


def to_hand_over(streams: Mapping[Key, Progress], surplus: Surplus, now: float, chance: float) -> list[Key]:
    """Choose which of an engine's streams go on elsewhere: those that cost least to compute again.

    `chance`, at least 0 and below 1, is how a fraction of a stream is rounded, since several relays have some
    of the streams each.
    """
    number = min(int(surplus.share * len(streams) + chance), MOST_AT_ONCE)
    movable = (key for key, progress in streams.items() if _may_move(progress, surplus, now))
    return nsmallest(number, movable, key=lambda key: streams[key].tokens)


def _may_move(progress: Progress, surplus: Surplus, now: float) -> bool:
    if surplus.of == "Waiting":
        return now - progress.heard_at > WAITING_SECONDS
    return progress.here >= LEAST_HERE
