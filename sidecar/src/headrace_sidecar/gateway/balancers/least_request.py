"""Least request: the engine that holds the fewest requests; of equals, the one not chosen for longest."""

from collections.abc import Sequence

from headrace_sidecar.gateway.balancers.context import Context
from headrace_sidecar.gateway.endpoint import Endpoint, Work


def pick(candidates: Sequence[Endpoint], _work: Work, _context: Context) -> Endpoint:
    """The candidate with the fewest requests."""
    return min(candidates, key=lambda endpoint: (endpoint.held(), endpoint.last_turn))
