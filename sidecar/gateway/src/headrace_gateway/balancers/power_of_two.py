"""Power of two choices: of two engines drawn at random, the one that holds fewer requests.

Nearly as even as asking all, and it never herds when many balancers share the engines. It is the paper's P2C
baseline [section 7].
"""

from collections.abc import Sequence

from headrace_gateway.balancers.context import Context
from headrace_gateway.balancers.endpoint import Endpoint, Work
from headrace_gateway.balancers.protocol import Needs

needs = Needs()


def pick(candidates: Sequence[Endpoint], _work: Work, context: Context) -> Endpoint:
    """Return the less loaded of two distinct candidates, or the only one."""
    drawn = context.random.sample(candidates, min(2, len(candidates)))
    return min(drawn, key=lambda endpoint: (endpoint.held_requests(), endpoint.last_turn))
