"""Round robin: the engine that was not chosen for longest, which stays even when engines come and go."""

from collections.abc import Sequence

from headrace_sidecar.gateway.balancers.context import Context
from headrace_sidecar.gateway.endpoint import Endpoint, Work


def pick(candidates: Sequence[Endpoint], _work: Work, _context: Context) -> Endpoint:
    """The candidate whose turn is the oldest."""
    return min(candidates, key=lambda endpoint: endpoint.last_turn)
