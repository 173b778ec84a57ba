"""What a balancer is: a function that chooses an engine, and what it must be told of a request to do so.

The fleet knows no balancer by name. It reads `needs`, and fills in of `Work` what a balancer asks for and
nothing else: other balancers do not pay for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace_gateway.balancers.context import Context
from headrace_gateway.balancers.endpoint import Endpoint, Work


@dataclass(frozen=True, slots=True)
class Needs:
    """What of a request a balancer asks for, beside its size.

    `prefixes`: `Work.cached`, how much of the prompt each engine holds in its prefix cache. `headers`: names,
    in lower case, of headers that Envoy sends to the picker and that are then in `Work.headers`; a session's
    name comes this way.
    """

    prefixes: bool = False
    headers: tuple[str, ...] = ()


class Balancer(Protocol):
    """Chooses the engine of each request; the modules of this package that `BALANCERS` lists are ones."""

    needs: Needs

    def pick(self, candidates: Sequence[Endpoint], work: Work, context: Context, /) -> Endpoint:
        """Return one of the candidates, of which there is at least one."""
        ...
