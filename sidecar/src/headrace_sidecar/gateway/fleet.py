"""The engines of one service, as its balancer sees them.

Reports and picks come in one at a time (one event loop, no await inside). The fleet decides who is a
candidate, whether the service is overloaded, asks the balancer, and keeps the books.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from random import Random

from headrace_engine.contracts import GatewayConfig, LoadReport
from headrace_sidecar.gateway.balancers import BALANCERS, Context
from headrace_sidecar.gateway.balancers.context import Rates
from headrace_sidecar.gateway.balancers.sal import wait_seconds
from headrace_sidecar.gateway.endpoint import Endpoint, Work
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
    endpoints: dict[str, Endpoint] = field(default_factory=dict)  # by IP
    token_rate: TokenRate = field(default_factory=TokenRate)
    turn: int = 0

    @classmethod
    def of(cls, config: GatewayConfig, random: Random) -> "Fleet":
        """A fleet without engines."""
        return cls(config, Context(random, config.sal))

    def configure(self, config: GatewayConfig) -> None:
        """Take a changed configuration; what is known of the engines stays."""
        self.config = config
        self.context.sal = config.sal

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Make these the service's engines; those that stay keep their reports and bookings."""
        self.endpoints = {address: self.endpoints.get(address) or Endpoint(address) for address in addresses}

    def observe(self, address: str, report: LoadReport, now: float) -> None:
        """Take in an engine's report at `now` (seconds); an address that is no longer ours is ignored."""
        endpoint = self.endpoints.get(address)
        if endpoint is None:
            return
        landed = endpoint.observe(report, now)
        if landed is not None:
            self.token_rate.learn(landed)
        self.context.typical = Rates.of(report).or_else(self.context.typical)

    def choose(self, prompt: Prompt, now: float) -> Endpoint:
        """The engine for a request that is sent at `now`; raises NoEngineError or OverloadedError."""
        candidates = self.candidates(now)
        if not candidates:
            raise NoEngineError
        work = self.token_rate.work(prompt)
        chosen = BALANCERS[self.config.balancer](candidates, work, self.context)
        self._refuse_overload(chosen, candidates)
        self.turn += 1
        chosen.last_turn = self.turn
        chosen.book(work, now)
        return chosen

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
        limit = self.config.max_queue_seconds
        if limit is None or wait_seconds(chosen, NOTHING, self.context) <= limit:
            return
        least = min(wait_seconds(endpoint, NOTHING, self.context) for endpoint in candidates)
        if least > limit:
            raise OverloadedError(least, limit)
