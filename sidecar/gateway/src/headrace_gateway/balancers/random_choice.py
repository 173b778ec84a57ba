"""Random: any engine, with equal chance; the baseline that needs no state at all."""

from collections.abc import Sequence

from headrace_gateway.balancers.context import Context
from headrace_gateway.balancers.endpoint import Endpoint, Work
from headrace_gateway.balancers.protocol import Needs

needs = Needs()


def pick(candidates: Sequence[Endpoint], _work: Work, context: Context) -> Endpoint:
    """Return a candidate by chance."""
    return context.random.choice(candidates)
