"""Round robin: the engine that was not chosen for longest, which stays even when engines come and go."""

from collections.abc import Sequence

from headrace_gateway.balancers.context import Context
from headrace_gateway.balancers.endpoint import Endpoint, Work
from headrace_gateway.balancers.protocol import Needs

needs = Needs()


def pick(candidates: Sequence[Endpoint], _work: Work, _context: Context) -> Endpoint:
    """Return the candidate whose turn is the oldest."""
    return min(candidates, key=lambda endpoint: endpoint.last_turn)
