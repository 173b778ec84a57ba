"""What the picker knows of one engine: its newest report, and what was sent to it since.

A report describes the engine at the moment it was taken. Requests that the picker sent but that had not
reached the scheduler by then are missing from it, so each choice is booked, and a booking is struck off
only when the report's cumulative `arrivals` says that the request has landed. A report taken too early thus
changes nothing, and requests do not herd to an engine that merely looks idle. Bookings that never land
(refused by vLLM, client gone, retried elsewhere) expire: soon, since each that stays biases every choice, and
sooner still where somebody would be refused for them.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace_engine.contracts import LoadReport

# A prompt is checked and tokenized, and then joins between two steps. After this it was lost, and mostly has
# landed long before: nobody is refused for what is overdue.
BOOKING_SECONDS = 2.0
OVERDUE_SECONDS = 0.5
TOKENIZED_PER_SECOND = 50_000  # slow for a tokenizer; long prompts get that much longer
MOST_TOKENIZING_SECONDS = 5.0

# The stream has a line a second at least: three silent seconds mean that the sidecar or the path is broken.
STALE_SECONDS = 3.0

SHARE_MEMORY = 0.95  # weight that a request keeps per later one in `Endpoint.uncached_share`


@dataclass(frozen=True, slots=True)
class Work:
    """What one client request will put into an engine's queue.

    `requests`: engine requests (prompts x choices). `tokens`: prompt tokens, estimated, each of them in
    `copies` requests: with prefix caching an engine computes and keeps a prompt once for several choices.
    Sums over all requests: `text_bytes`, the part of the prompt that came as text; `counted_tokens`, the
    part that came as token ids; `media`, pictures, sounds and files in it.
    What balancers have to ask for: `cached`, by address the part of `tokens` that an engine need not compute
    since it did so before; `headers`, the request's by name.
    """

    requests: int = 1
    tokens: float = 0.0
    text_bytes: int = 0
    counted_tokens: int = 0
    media: int = 0
    copies: int = 1
    cached: Mapping[str, float] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def uncached_tokens(self, address: str) -> float:
        """Return the prompt tokens that the engine at `address` would have to compute."""
        return self.tokens - self.cached.get(address, 0.0)


NOTHING = Work(requests=0)


@dataclass(slots=True)
class Booking:
    """Work that was sent and is not known to have landed; lost if it has not by `deadline` (seconds)."""

    deadline: float
    requests: int
    tokens: float
    uncached: float  # tokens to compute
    text_bytes: float
    counted_tokens: float
    media: float


@dataclass(frozen=True, slots=True)
class Landed:
    """Work that a report confirms: what was booked for it, and the prompt tokens that the engine counted."""

    text_bytes: float
    counted_tokens: float
    media: float
    arrived_tokens: int


class Backlog(NamedTuple):
    """What lies before a new request on one engine, as `waits` sums it up between two changes."""

    seconds: float  # to compute what no step has taken up, as last reported and booked
    done_at: float  # when that is computed if the engine goes on without a report; the picker's clock
    busy_until: float
    per_token: float  # seconds to compute a prompt token
    room: float  # tokens for which there is KV at once; what is waiting and booked has its own


@dataclass(slots=True)
class Endpoint:
    """One engine. Mutable, owned by its service's `Fleet`, which sets `backlog` to None as it changes one.

    The fields below `reported_at` are sums over the report that every choice needs, made once per report.
    """

    address: str  # IP
    report: LoadReport | None = None
    reported_at: float = float("-inf")  # the picker's clock, seconds
    serving: bool = False
    queued_tokens: float = 0.0  # prompt tokens that must still be computed
    missing_blocks: int = 0  # KV blocks that waiting prompts need beyond the free ones; negative = to spare
    requests: int = 0  # running and waiting

    bookings: deque[Booking] = field(default_factory=deque)
    booked_requests: int = 0
    booked_tokens: float = 0.0
    booked_uncached: float = 0.0  # those of them that must be computed
    busy_until: float = float("-inf")  # when the prefills sent so far should be done; the picker's clock
    sent_tokens: float = 0.0  # prompt tokens lately, older ones fading
    sent_uncached: float = 0.0
    last_turn: int = 0  # number of the service's pick that last chose this engine
    backlog: Backlog | None = None  # None: to be summed up anew

    def is_fresh(self, now: float) -> bool:
        """Tell whether the engine reports and makes progress."""
        return self.serving and not self.is_silent(now)

    def is_silent(self, now: float) -> bool:
        """Tell whether nothing was heard of the engine lately."""
        return now - self.reported_at > STALE_SECONDS

    @property
    def step_seconds(self) -> float:
        """How long its steps take; 0 if nobody knows."""
        return self.report.step_seconds if self.report is not None else 0.0

    def held_requests(self) -> int:
        """Count the requests that the engine runs, queues, or is about to get."""
        return self.booked_requests + self.requests

    def book(self, work: Work, now: float) -> None:
        """Remember that `work` is on its way; vLLM refuses what its model or cache can't hold."""
        tokens, step = work.tokens, 0.0
        if self.report is not None:
            step = self.report.step_seconds
            room = self.report.total_kv_blocks * self.report.block_size
            known = [most for most in (room, self.report.max_model_len) if most]
            tokens = min([tokens, *(most * work.requests / work.copies for most in known)])
        self.backlog = None
        uncached = min(work.uncached_tokens(self.address), tokens)
        tokenizing = min(tokens / TOKENIZED_PER_SECOND, MOST_TOKENIZING_SECONDS)
        deadline = now + BOOKING_SECONDS + 2 * step + tokenizing
        self.bookings.append(
            Booking(
                deadline, work.requests, tokens, uncached, work.text_bytes, work.counted_tokens, work.media
            )
        )
        self.booked_requests += work.requests
        self.booked_tokens += tokens
        self.booked_uncached += uncached
        self.sent_tokens = self.sent_tokens * SHARE_MEMORY + tokens * work.copies
        self.sent_uncached = self.sent_uncached * SHARE_MEMORY + uncached

    def pending_tokens(self) -> float:
        """Return the prompt tokens to compute that no step has taken up, as far as is known."""
        return self.queued_tokens + self.booked_uncached

    def uncached_share(self) -> float:
        """Return the share of prompt tokens sent lately that is to compute: reports count cached ones too."""
        return self.sent_uncached / self.sent_tokens if self.sent_tokens > 0 else 1.0

    def forget_stale(self, now: float) -> None:
        """Drop a report that is too old to say anything, and the work that should have landed long ago."""
        self.expire_bookings(now)
        if self.report is not None and self.is_silent(now):
            self.report = None
            self.busy_until = float("-inf")
            self.backlog = None
            self.queued_tokens, self.missing_blocks, self.requests = 0.0, 0, 0

    def expire_bookings(self, now: float) -> None:
        """Forget work that should have landed long ago."""
        while self.bookings and now > self.bookings[0].deadline:
            self._take(self.bookings[0].requests)

    def forget_overdue(self, now: float) -> None:
        """Forget work that should have landed by now, though it still may."""
        self.backlog = None
        late = now + BOOKING_SECONDS - OVERDUE_SECONDS
        self.bookings = deque(each for each in self.bookings if late <= each.deadline)
        self.booked_requests = sum(each.requests for each in self.bookings)
        self.booked_tokens = sum(each.tokens for each in self.bookings)
        self.booked_uncached = sum(each.uncached for each in self.bookings)

    def observe(self, report: LoadReport, now: float) -> Landed | None:
        """Take in a report; returns what landed since the one before, if all of it was booked here."""
        before, self.report, self.reported_at = self.report, report, now
        self.backlog = None
        self.serving = report.serving
        waiting = report.waiting_prefill_tokens * self.uncached_share()
        self.queued_tokens = waiting + report.unfinished_prefill_tokens
        self.missing_blocks = report.waiting_kv_blocks - report.free_kv_blocks
        self.requests = report.running + report.waiting
        if before is None or before.boot != report.boot:
            self.bookings.clear()
            self._unbook()
            return None
        self.expire_bookings(now)
        arrivals = report.arrivals - before.arrivals
        known = arrivals <= self.booked_requests
        text_bytes, counted_tokens, media = self._take(arrivals)
        if arrivals <= 0 or not known:
            return None
        return Landed(text_bytes, counted_tokens, media, report.arrived_tokens - before.arrived_tokens)

    def _take(self, requests: int) -> tuple[float, float, float]:
        """Strike off the oldest `requests`; returns their text bytes, counted tokens and media."""
        text_bytes = counted_tokens = media = 0.0
        self.backlog = None
        while requests > 0 and self.bookings:
            head = self.bookings[0]
            taken = min(requests, head.requests)
            share = taken / head.requests
            part = Booking(
                head.deadline,
                taken,
                head.tokens * share,
                head.uncached * share,
                head.text_bytes * share,
                head.counted_tokens * share,
                head.media * share,
            )
            requests -= taken
            self.booked_requests -= taken
            self.booked_tokens -= part.tokens
            self.booked_uncached -= part.uncached
            text_bytes += part.text_bytes
            counted_tokens += part.counted_tokens
            media += part.media
            if taken == head.requests:
                self.bookings.popleft()
            else:
                head.requests -= taken
                head.tokens -= part.tokens
                head.uncached -= part.uncached
                head.text_bytes -= part.text_bytes
                head.counted_tokens -= part.counted_tokens
                head.media -= part.media
        if not self.bookings:
            self._unbook()  # no rounding residue
        return text_bytes, counted_tokens, media

    def _unbook(self) -> None:
        self.booked_requests, self.booked_tokens, self.booked_uncached = 0, 0.0, 0.0
