"""What the gateway's benchmark fixes: the stand-in engines, their services, the workload."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from e2e.bench.gateway.stand_in import Limits
from e2e.bench.runs import workloads
from headrace_engine.contracts import GatewayConfig
from headrace_engine.contracts.gateway_config import Balancer
from headrace_engine.cost import catalog
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_gateway import balancers

MODEL, GPU = "llama-3-8b", "H100"
COST = catalog.find_cost_model(MODEL, GPU)
LIMITS = Limits()
ENGINES = 4  # per service
BALANCERS: tuple[Balancer, ...] = tuple(name for name in balancers.BALANCERS if name != "Random")
NAMESPACE = "bench"
WORKLOAD = "code-poisson"
LONGEST = 8192  # tokens of prompt and answer

_WORDS = 50_000


def service(name: str, balancer: Balancer, port: int, sidecar_port: int, **others: Any) -> GatewayConfig:
    """Make a service as the operator would tell the picker."""
    return GatewayConfig(
        namespace=NAMESPACE,
        name=name,
        models=(name, f"{NAMESPACE}/{name}"),
        served_name=name,
        balancer=balancer,
        port=port,
        sidecar_port=sidecar_port,
        **others,
    )


def arrivals(rate: float, seconds: float, seed: int) -> list[Arrival]:
    """Make requests for about `seconds` at `rate` per second."""
    return workloads.make(WORKLOAD, round(rate * seconds), rate, seed, LONGEST)


def texts(requests: Sequence[Arrival], seed: int) -> Iterator[str]:
    """Make a text for each request: as many words as it has prompt tokens, none with another's beginning."""
    random = Random(seed)
    words = ["x" * random.randint(2, 8) for _ in range(_WORDS)]
    for number, request in enumerate(requests):
        start = random.randrange(_WORDS - LONGEST)
        yield " ".join([f"{seed}.{number}", *words[start : start + request.prompt_tokens - 1]])
