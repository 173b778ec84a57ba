"""Random: any engine, with equal chance; the baseline that needs no state at all."""

from collections.abc import Sequence

from headrace_sidecar.gateway.balancers.context import Context
from headrace_sidecar.gateway.endpoint import Endpoint, Work


def pick(candidates: Sequence[Endpoint], _work: Work, context: Context) -> Endpoint:
    """A candidate by chance."""
    return context.random.choice(candidates)
