"""The engines of one service, as its balancer sees them.

Reports and picks come in one at a time (one event loop, no await inside). The fleet decides who is a
candidate, whether the service is overloaded, asks the balancer, and keeps the books.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from types import MappingProxyType

from headrace_engine.contracts import GatewayConfig, LoadReport
from headrace_gateway.balancers import BALANCERS
from headrace_gateway.balancers.context import Context, Rates
from headrace_gateway.balancers.endpoint import NOTHING, STALE_SECONDS, Endpoint, Work
from headrace_gateway.balancers.protocol import Balancer
from headrace_gateway.balancers.waits import all_wait_seconds, prefill_rate, prefill_seconds, wait_seconds
from headrace_gateway.pick.placement import Placement
from headrace_gateway.pick.prefix_index import Chunks, PrefixIndex
from headrace_gateway.pick.rebalance import Reason, has_room, pays
from headrace_gateway.pick.tokens import Prompt, TokenRate

RATE_SECONDS = 0.5  # between two looks at all engines' rates, which move slowly
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class NoEngineError(LookupError):
    """The service has no ready engine."""


class OverloadedError(Exception):
    """Every engine's queue is longer than the service allows; both in seconds, `retry_after` 1 to 60."""

    def __init__(self, wait: float, limit: float) -> None:
        super().__init__(f"the shortest queue takes about {wait:.0f} s, the service allows {limit:g} s")
        self.retry_after = min(60, max(1, ceil(wait - limit)))


@dataclass(slots=True)
class Fleet:
    """One service's engines, balancer and learned numbers."""

    context: Context
    balancer: Balancer
    endpoints: dict[str, Endpoint] = field(default_factory=dict)  # by IP
    token_rate: TokenRate = field(default_factory=TokenRate)
    prefixes: PrefixIndex = field(default_factory=PrefixIndex)
    turn: int = 0
    rates_due: float = float("-inf")  # when all engines' rates are looked at again
    all_fresh: list[Endpoint] = field(default_factory=list)  # all engines, if they were when last looked at
    all_fresh_until: float = float("-inf")  # none of them falls silent before

    @classmethod
    def from_config(cls, config: GatewayConfig, random: Random) -> "Fleet":
        """Make a fleet that has no engines yet."""
        return cls(Context(random, config), BALANCERS[config.balancer])

    @property
    def config(self) -> GatewayConfig:
        """The configuration of this service, as its route gives it."""
        return self.context.config

    def configure(self, config: GatewayConfig) -> None:
        """Take a changed configuration; what is known of the engines stays."""
        self.context.config = config
        self.balancer = BALANCERS[config.balancer]

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Make these the service's engines; those that stay keep their reports and bookings."""
        self.endpoints = {address: self.endpoints.get(address) or Endpoint(address) for address in addresses}
        self.prefixes.keep_engines(self.endpoints)
        self.all_fresh_until = float("-inf")

    def observe(self, address: str, report: LoadReport, now: float) -> None:
        """Take in an engine's report at `now` (seconds); an address that is no longer ours is ignored."""
        endpoint = self.endpoints.get(address)
        if endpoint is None:
            return
        before = endpoint.pending_tokens()
        landed = endpoint.observe(report, now)
        if not report.serving:
            self.all_fresh_until = float("-inf")
        self._learn_rates(report, now)
        self._correct_busy(endpoint, before, now)
        if landed is not None:
            self.token_rate.learn(landed)
        kv_tokens = report.total_kv_blocks * report.block_size
        self.prefixes.resize(address, report.boot, kv_tokens / self.token_rate.value())

    def _learn_rates(self, report: LoadReport, now: float) -> None:
        """Learn what is typical: the prefill rate that half of the engines reach, the rest as told last."""
        if not report.prefill_tokens_per_second or now < self.rates_due:
            rates = replace(Rates.from_report(report), prefill=0.0)
        else:
            self.rates_due = now + RATE_SECONDS
            reports = [each.report for each in self.endpoints.values() if each.report is not None]
            known = sorted(rate for each in reports if (rate := each.prefill_tokens_per_second))
            rates = replace(Rates.from_report(report), prefill=known[len(known) // 2])
        before, self.context.typical = self.context.typical, rates.with_fallback(self.context.typical)
        if self.context.typical.prefill != before.prefill:
            for endpoint in self.endpoints.values():
                endpoint.backlog = None

    def _correct_busy(self, endpoint: Endpoint, before: float, now: float) -> None:
        """Let a report correct when the engine should be done, so that errors of its rate do not add up.

        What is pending is still to be done. What was pending before and is not any more may be in the step
        under way; nothing else is.
        """
        rate = prefill_rate(endpoint, self.context)
        pending = endpoint.pending_tokens()
        most = max(before, pending) if endpoint.requests else pending
        endpoint.busy_until = min(max(endpoint.busy_until, now + pending / rate), now + most / rate)
        endpoint.backlog = None

    def choose(
        self,
        prompt: Prompt,
        now: float,
        headers: Mapping[str, str] = NO_HEADERS,
        among: Collection[str] | None = None,
        *,
        may_refuse: bool = True,
    ) -> Placement:
        """Choose the engine of a request that is sent at `now`, `among` these addresses, None for all.

        Raises NoEngineError or, if it `may_refuse`, OverloadedError.
        """
        candidates = self._candidates_among(among, now)
        self.context.now = now
        work, chunks = self._describe_work(prompt, headers)
        chosen = self.balancer.pick(candidates, work, self.context)
        if may_refuse:
            self._refuse_overload(chosen, candidates)
        return self._place(chosen, work, chunks)

    def choose_other(
        self, prompt: Prompt, now: float, among: Collection[str], *, leaving: str, reason: Reason
    ) -> Placement:
        """Choose where a stream goes on that could stay at the address `leaving`, among those with room.

        Raises NoEngineError if it had better stay.
        """
        own = self.endpoints.get(leaving)
        candidates = [
            each for each in self._candidates_among(among, now) if each is not own and has_room(each)
        ]
        if own is None or not candidates:
            raise NoEngineError
        self.context.now = now
        work, chunks = self._describe_work(prompt, NO_HEADERS)
        chosen = self.balancer.pick(candidates, work, self.context)
        if not pays(own, chosen, work, self.context, answered=prompt.answered, reason=reason):
            raise NoEngineError
        return self._place(chosen, work, chunks)

    def choose_with_room(self, prompt: Prompt, now: float, among: Collection[str]) -> Placement:
        """Choose where a stream goes on that its engine has handed back, among those with room for all of it.

        Raises NoEngineError if it had better wait.
        """
        self.context.now = now
        work, chunks = self._describe_work(prompt, NO_HEADERS)
        candidates = [each for each in self._candidates_among(among, now) if has_room(each, work.tokens)]
        if not candidates:
            raise NoEngineError
        return self._place(self.balancer.pick(candidates, work, self.context), work, chunks)

    def _place(self, chosen: Endpoint, work: Work, chunks: Chunks) -> Placement:
        placement = Placement(chosen.address, work, chunks)
        self._keep(chosen, placement, self.context.now)
        return placement

    def choose_unread(self, now: float, among: Collection[str] | None = None) -> str:
        """Choose the address for what is no prompt, such as a question for models: whoever holds least.

        Nothing is booked. Raises NoEngineError.
        """
        return min(self._candidates_among(among, now), key=Endpoint.held_requests).address

    def _candidates_among(self, among: Collection[str] | None, now: float) -> list[Endpoint]:
        candidates = self.candidates(now)
        if among is not None:
            candidates = [endpoint for endpoint in candidates if endpoint.address in among]
        if not candidates:
            raise NoEngineError
        return candidates

    def take_in(self, placement: Placement, now: float) -> None:
        """Take in what another picker placed; an engine that is not ours is ignored."""
        endpoint = self.endpoints.get(placement.address)
        if endpoint is not None:
            self.context.now = now
            self._keep(endpoint, placement, now)

    def _keep(self, chosen: Endpoint, placement: Placement, now: float) -> None:
        work = placement.work
        self.turn += 1
        chosen.last_turn = self.turn
        chosen.busy_until = now + prefill_seconds(chosen, work, self.context)
        chosen.book(work, now)
        chosen.backlog = None
        if placement.chunks:
            self.prefixes.record(chosen.address, placement.chunks)

    def _describe_work(self, prompt: Prompt, headers: Mapping[str, str]) -> tuple[Work, Chunks]:
        """Describe the request as far as the balancer needs it, and the beginning that engines may hold."""
        needs, work = self.balancer.needs, self.token_rate.work(prompt)
        if self.config.prefix_caching and prompt.choices > 1:
            work = replace(work, tokens=work.tokens / prompt.choices, copies=prompt.choices)
        if needs.headers:
            work = replace(work, headers={name: headers[name] for name in needs.headers if name in headers})
        if not (needs.prefixes and self.config.prefix_caching):
            return work, []
        chunks, size = prompt.beginning()
        cached = self.prefixes.cached(chunks)
        if cached:
            # Pictures are tokens of the prompt, and `text` ends before the first.
            prompts = prompt.requests / work.copies
            per_byte = self.token_rate.value() * prompts if prompt.media else work.tokens / size
            work = replace(work, cached={address: held * per_byte for address, held in cached.items()})
        return work, chunks

    def candidates(self, now: float) -> list[Endpoint]:
        """Return the engines that report and make progress, or those that are silent besides.

        Where only a minority reports, the path of the reports is broken rather than the engines, and those
        that are left could not serve all: half is where Envoy panics, too. If all who report are stuck and
        nobody is silent, all are candidates.
        """
        if now < self.all_fresh_until:
            return self.all_fresh  # mostly, so that no pick looks at each
        endpoints = self.endpoints.values()
        fresh = [endpoint for endpoint in endpoints if endpoint.is_fresh(now)]
        if fresh and len(fresh) == len(endpoints):
            self.all_fresh = fresh
            self.all_fresh_until = min(endpoint.reported_at for endpoint in fresh) + STALE_SECONDS
        if fresh and 2 * len(fresh) >= len(endpoints):
            return fresh
        silent = [endpoint for endpoint in endpoints if endpoint.is_silent(now)]
        if fresh and len(fresh) >= len(silent):
            return fresh
        for endpoint in silent:
            endpoint.forget_stale(now)  # an old queue must not refuse requests for ever
        return fresh + silent or list(endpoints)

    def _refuse_overload(self, chosen: Endpoint, candidates: list[Endpoint]) -> None:
        """Raise OverloadedError if every candidate's queue is too long; mostly a look at `chosen` is enough.

        The queue ahead counts, without the request itself: a long prompt alone is no overload. And nobody is
        refused for what was sent long enough ago that a report would tell of it, if it had landed.
        """
        allowed = self.config.max_queue_ms
        if allowed is None:
            return
        limit = allowed / 1000
        if wait_seconds(chosen, NOTHING, self.context) <= limit:
            return
        least = min(all_wait_seconds(candidates, NOTHING, self.context))
        if least <= limit:
            return
        for endpoint in candidates:
            endpoint.forget_overdue(self.context.now)
            self._correct_busy(endpoint, endpoint.pending_tokens(), self.context.now)
        least = min(all_wait_seconds(candidates, NOTHING, self.context))
        if least > limit:
            raise OverloadedError(least, limit)
