"""Balancers: which engine gets the next request.

Each is one module: a function `pick` of the candidates, the work and the service's `Context`, and what it
`needs` to be told of a request. Nothing here knows a clock, a network or Envoy, so the same functions run in
the picker and on a simulation's virtual clock. Keeping the books (`Endpoint.book`, turns) is the fleet's
part, the same for all of them, so that a service may change its balancer and lose nothing.

A new balancer is one more module, its name in the contract's `Balancer`, and a line in `BALANCERS`.
"""

from collections.abc import Mapping

from headrace_engine.contracts.gateway_config import Balancer as BalancerName
from headrace_gateway.balancers import least_request, power_of_two, random_choice, round_robin, sal
from headrace_gateway.balancers.protocol import Balancer

BALANCERS: Mapping[BalancerName, Balancer] = {
    "SAL": sal,
    "LeastRequest": least_request,
    "PowerOfTwo": power_of_two,
    "RoundRobin": round_robin,
    "Random": random_choice,
}


def needed_headers() -> list[str]:
    """List the request headers that any balancer asks for: Envoy sends the picker these."""
    return sorted({header for balancer in BALANCERS.values() for header in balancer.needs.headers})
