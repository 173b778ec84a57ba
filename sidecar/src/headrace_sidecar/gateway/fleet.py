"""The engines of one service, as its balancer sees them.

Reports and picks come in one at a time (one event loop, no await inside). The fleet decides who is a
candidate, whether the service is overloaded, asks the balancer, and keeps the books.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random

from headrace_engine.contracts import GatewayConfig, LoadReport
from headrace_sidecar.gateway.balancers import BALANCERS, Context, Pick
from headrace_sidecar.gateway.balancers.context import Rates
from headrace_sidecar.gateway.balancers.sal import prefill_rate, prefill_seconds, wait_seconds
from headrace_sidecar.gateway.endpoint import Endpoint, Work
from headrace_sidecar.gateway.prefix_index import Chunks, PrefixIndex, chunks_of
from headrace_sidecar.gateway.tokens import Prompt, TokenRate

NOTHING = Work(requests=0)


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

    config: GatewayConfig
    context: Context
    pick: Pick
    endpoints: dict[str, Endpoint] = field(default_factory=dict)  # by IP
    token_rate: TokenRate = field(default_factory=TokenRate)
    prefixes: PrefixIndex = field(default_factory=PrefixIndex)
    turn: int = 0

    @classmethod
    def of(cls, config: GatewayConfig, random: Random) -> "Fleet":
        """A fleet without engines."""
        return cls(config, Context(random, config.sal), BALANCERS[config.balancer])

    def configure(self, config: GatewayConfig) -> None:
        """Take a changed configuration; what is known of the engines stays."""
        self.config = config
        self.context.sal = config.sal
        self.pick = BALANCERS[config.balancer]

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Make these the service's engines; those that stay keep their reports and bookings."""
        self.endpoints = {address: self.endpoints.get(address) or Endpoint(address) for address in addresses}
        self.prefixes.keep(self.endpoints)

    def observe(self, address: str, report: LoadReport, now: float) -> None:
        """Take in an engine's report at `now` (seconds); an address that is no longer ours is ignored."""
        endpoint = self.endpoints.get(address)
        if endpoint is None:
            return
        before = endpoint.pending()
        landed = endpoint.observe(report, now)
        self._correct_busy(endpoint, before, now)
        if landed is not None:
            self.token_rate.learn(landed)
        self.context.typical = Rates.of(report).or_else(self.context.typical)
        kv_tokens = report.total_kv_blocks * report.block_size
        self.prefixes.resize(address, report.boot, kv_tokens / self.token_rate.value())

    def _correct_busy(self, endpoint: Endpoint, before: float, now: float) -> None:
        """Let a report correct when the engine should be done, so that errors of its rate do not add up.

        What is pending is still to be done. What was pending before and is not any more may be in the step
        under way; nothing else is.
        """
        rate = prefill_rate(endpoint, self.context)
        pending = endpoint.pending()
        most = max(before, pending) if endpoint.requests else pending
        endpoint.busy_until = min(max(endpoint.busy_until, now + pending / rate), now + most / rate)

    def choose(self, prompt: Prompt, now: float) -> Endpoint:
        """The engine for a request that is sent at `now`; raises NoEngineError or OverloadedError."""
        candidates = self.candidates(now)
        if not candidates:
            raise NoEngineError
        self.context.now = now
        work, chunks = self._work(prompt)
        chosen = self.pick(candidates, work, self.context)
        self._refuse_overload(chosen, candidates)
        self.turn += 1
        chosen.last_turn = self.turn
        chosen.busy_until = now + prefill_seconds(chosen, work, self.context)
        chosen.book(work, now)
        if chunks:
            self.prefixes.record(chosen.address, chunks)
        return chosen

    def _work(self, prompt: Prompt) -> tuple[Work, Chunks]:
        """The prompt as work, and what of it engines may hold; only SAL asks what they do."""
        work = self.token_rate.work(prompt)
        if self.config.balancer != "SAL" or not self.config.prefix_caching or not prompt.text:
            return work, []
        chunks = chunks_of(prompt.text)
        cached = self.prefixes.cached(chunks)
        if cached:
            per_byte = work.tokens / len(prompt.text)
            work = replace(work, cached={address: held * per_byte for address, held in cached.items()})
        return work, chunks

    def candidates(self, now: float) -> list[Endpoint]:
        """Engines that report and make progress; if none does, all: an engine serves without its sidecar."""
        endpoints = self.endpoints.values()
        fresh = [endpoint for endpoint in endpoints if endpoint.fresh(now)]
        if fresh:
            return fresh
        for endpoint in endpoints:
            endpoint.forget(now)  # an old queue must not refuse requests for ever
        return list(endpoints)

    def _refuse_overload(self, chosen: Endpoint, candidates: list[Endpoint]) -> None:
        """Raise OverloadedError if every candidate's queue is too long; mostly a look at `chosen` is enough.

        The queue ahead counts, without the request itself: a long prompt alone is no overload.
        """
        allowed = self.config.max_queue_ms
        if allowed is None:
            return
        limit = allowed / 1000
        if wait_seconds(chosen, NOTHING, self.context) <= limit:
            return
        least = min(wait_seconds(endpoint, NOTHING, self.context) for endpoint in candidates)
        if least > limit:
            raise OverloadedError(least, limit)
