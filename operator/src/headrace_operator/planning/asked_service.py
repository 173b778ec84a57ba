"""A service that a plan is made for: how it is estimated, and what it was asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from random import Random

from headrace_engine.contracts.traffic import TrafficWindow
from headrace_operator.api import Reason, parse_service
from headrace_operator.api.placement import PlacedService, Placement
from headrace_operator.decide.places import put_as_planned
from headrace_operator.errors import RefusedError, SpecInvalidError
from headrace_operator.placement.problem import Service
from headrace_operator.placement.traffic import Span, Summary, make_requests, sum_up
from headrace_operator.planning.question import ServiceTraffic
from headrace_operator.simulate.pool.pool_service import PoolService, read_service
from headrace_operator.simulate.usage_error import UsageError


@dataclass(frozen=True, slots=True)
class AskedService:
    """A service with all that was asked of it."""

    simulated: PoolService
    windows: tuple[TrafficWindow, ...]
    silent: bool  # none of its engines has told anything

    @property
    def name(self) -> str:
        """Its name."""
        return self.simulated.name

    def sum_up(self, span: Span) -> Summary | None:
        """Sum up what its engines told of `span`; None if it was asked nothing."""
        return sum_up(span.select(self.windows))

    def count(self, span: Span) -> int:
        """Count the requests of `span`."""
        asked = self.sum_up(span)
        return asked.requests if asked else 0

    def as_placed(self, span: Span, share: float) -> Service:
        """Return what the search for a plan needs to know, asked the first `share` of that in `span`."""
        most = ceil(share * self.count(span))
        longest = self.simulated.engine.settings.max_model_len
        random = Random(self.name)  # noqa: S311  (no secret)
        return self.simulated.as_placed(make_requests(self.windows, span, longest, most, random))


def read_asked(
    told: ServiceTraffic, placement: Placement, placed: PlacedService | None = None
) -> AskedService:
    """Find out how a service is estimated; RefusedError names the field that stands against it.

    `placed`: where its pool has put it; None if it is as its own spec says.
    """
    name = told.service["metadata"]["name"]
    cost_model = next((each.cost_model for each in placement.services if each.name == name), None)
    try:
        service = put_as_planned(parse_service(told.service), placed)
    except SpecInvalidError as error:
        raise RefusedError(Reason.NOT_ESTIMABLE, f"LLMService {name} is not valid: {error}") from error
    try:
        return AskedService(read_service(service, cost_model, placement.gpus.type), told.windows, told.silent)
    except UsageError as error:
        raise RefusedError(Reason.NOT_ESTIMABLE, _with_fields(str(error), name)) from error


def _with_fields(message: str, service: str) -> str:
    """Name the pool's fields where `headrace simulate` names its options."""
    message = re.sub(r"--model\b", f"spec.placement.services[{service}].costModel", message)
    return re.sub(r"--gpu\b(?!-)", "spec.placement.gpus.type", message)
