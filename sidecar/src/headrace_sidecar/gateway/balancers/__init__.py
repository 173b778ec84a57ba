"""Balancers: which engine gets the next request.

Each is one function of the candidates, the work and the service's `Context`; nothing here knows a clock, a
network or Envoy, so the same functions run in the picker and on a simulation's virtual clock. Candidates
are never empty. Keeping the books (`Endpoint.book`, turns) is the fleet's part, the same for all of them,
so that a service may change its balancer and lose nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from headrace_sidecar.gateway.balancers import least_request, power_of_two, random_choice, round_robin, sal
from headrace_sidecar.gateway.balancers.context import FIRST_GUESS, Context
from headrace_sidecar.gateway.endpoint import Endpoint, Work

Pick = Callable[[Sequence[Endpoint], Work, Context], Endpoint]

BALANCERS: Mapping[str, Pick] = {
    "SAL": sal.pick,
    "LeastRequest": least_request.pick,
    "PowerOfTwo": power_of_two.pick,
    "RoundRobin": round_robin.pick,
    "Random": random_choice.pick,
}

__all__ = ["BALANCERS", "FIRST_GUESS", "Context", "Pick"]
