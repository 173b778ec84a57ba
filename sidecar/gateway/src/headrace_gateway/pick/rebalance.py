"""Which streams had better go on at another engine: of one where requests wait, or whose tokens come slowly.

Pickers know how many, relays offer some, and pickers tell of each whether it pays. What max-min offload is to
batches [SCLS 4.4], for streams that are under way; the rules are ours. A stream that moves makes its new
engine compute all that it has so far, so none moves but to an engine with KV to spare at which nobody waits,
and a slow engine hands over a small part each time: what that changes is to show first.
"""

from collections.abc import Collection, Mapping
from heapq import nsmallest
from typing import Literal, NamedTuple, TypeGuard, TypeVar, get_args

import orjson

from headrace_gateway.balancers.context import Context
from headrace_gateway.balancers.endpoint import NOTHING, Endpoint, Work
from headrace_gateway.balancers.waits import DEFAULT_BLOCK_SIZE, prefill_rate, wait_seconds

SPARE = 0.1  # of KV, over what is waiting or on its way: else new requests soon wait for what moved
SLOWER = 1.25  # times another engine's step
SLOWER_SECONDS = 0.001  # by which its step is longer, at least
PART = 0.05  # of a slow engine's streams, each time

MOST_AT_ONCE = 32  # streams, each time: new requests wait while another engine computes their prompts
WAITING_SECONDS = 1.0  # without a token: the stream waits, or has been preempted
LEAST_HERE = 32  # tokens from its engine, before a stream that runs moves on: it has had a pause already
MARGIN = 4  # times what all others lose: what is to come is guessed, and who moves has a pause

Key = TypeVar("Key")
Reason = Literal["Terminating", "Waiting", "Running", "SteppedBack"]

STEPPED_BACK: Reason = "SteppedBack"
"""Its engine has ended it: it goes on where there is room, be that the same one."""


def is_reason(word: str) -> TypeGuard[Reason]:
    """Tell whether it is a `Reason`."""
    return word in get_args(Reason)


class Surplus(NamedTuple):
    """What an engine shall hand over: the share (over 0, at most 1) of its streams, and why, thus which.

    Where it is `Terminating`, it is being stopped.
    """

    share: float
    reason: Reason


TERMINATING = Surplus(1.0, "Terminating")


class Leaving(NamedTuple):
    """Why a stream could leave its engine, and the authority of that."""

    reason: Reason
    host: str


class Progress(NamedTuple):
    """How far a stream is.

    `tokens`: prompt and answer so far, which another engine would have to compute. `here`: tokens that its
    engine delivered since it was asked, or since the stream was told to stay there. `heard_at`: when the last
    of them came, or when that was; seconds.
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


def has_room(endpoint: Endpoint, tokens: float = 0.0) -> bool:
    """Tell whether an engine could take up so many tokens of streams: nobody waits there, KV is to spare."""
    report = endpoint.report
    if report is None or report.waiting:
        return False
    taken_blocks = (endpoint.booked_tokens + tokens) / (report.block_size or DEFAULT_BLOCK_SIZE)
    return -endpoint.missing_blocks - taken_blocks > SPARE * report.total_kv_blocks


def pays(
    leaving: Endpoint, target: Endpoint, work: Work, context: Context, *, answered: int, reason: Reason
) -> bool:
    """Tell whether a stream gains `MARGIN` times as much at `target` as all who run there lose by it.

    `work`: all that it has so far, of which `answered` tokens are of its answer. It gains half of the time in
    which all that waits where it is could start; or, if it runs, what its steps are shorter: for as many
    tokens as it has had, since the longer an answer is the longer it goes on. Whoever runs at `target` loses
    the time in which that computes what the engine that it leaves need not compute.
    """
    again = work.uncached_tokens(target.address)
    if reason == "Running":
        gain = answered * (leaving.step_seconds - target.step_seconds)
    else:
        again -= work.uncached_tokens(leaving.address)
        gain = wait_seconds(leaving, NOTHING, context) / 2 - wait_seconds(target, work, context)
    lost = max(again, 0.0) / prefill_rate(target, context) * (1 + target.held_requests())
    return gain > MARGIN * lost


def write_surpluses(found: Mapping[str, Surplus]) -> bytes:
    """Write what relays are told."""
    return orjson.dumps({engine: list(surplus) for engine, surplus in found.items()})


def read_surpluses(data: bytes) -> dict[str, Surplus]:
    """Read what `write_surpluses` wrote, and leave out what is not known here; raises ValueError."""
    told = orjson.loads(data)
    try:
        read = {engine: Surplus(float(share), reason) for engine, (share, reason) in told.items()}
    except (AttributeError, TypeError) as error:
        raise ValueError("it is no share and reason by engine") from error
    return {engine: each for engine, each in read.items() if is_reason(each.reason) and 0 < each.share <= 1}


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
    if surplus.reason == "Waiting":
        return now - progress.heard_at > WAITING_SECONDS
    return progress.here >= LEAST_HERE
