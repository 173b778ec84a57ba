"""Least request: the engine that holds the fewest requests; of equals, the one not chosen for longest."""

from collections.abc import Sequence

from headrace_gateway.balancers.context import Context
from headrace_gateway.balancers.endpoint import Endpoint, Work
from headrace_gateway.balancers.protocol import Needs

needs = Needs()


def pick(candidates: Sequence[Endpoint], _work: Work, _context: Context) -> Endpoint:
    """Return the candidate with the fewest requests."""
    return min(candidates, key=lambda endpoint: (endpoint.held_requests(), endpoint.last_turn))
