"""Services and nodes to place, drawn at random: recorded lengths, and models that have cost models."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from e2e.bench.runs import workloads
from headrace_engine.contracts import Slo
from headrace_engine.cost import catalog
from headrace_operator.placement.problem import Nodes, Request, Service
from headrace_operator.simulate.models import list_sizes
from headrace_operator.simulate.simulated_engine import RESERVED, UTILIZATION, default_steps

LENGTHS = ("sharegpt", "code", "conversation", "arxiv")
GAPS = ("poisson", "bursty")
LONGEST = 8192  # tokens
SLO_SCALE = 5  # times as long as a request takes alone
SKEW = 1.2  # of the Pareto distribution of rates: few services have most requests
LEAST_REQUESTS = 20  # of a service


@dataclass(frozen=True, slots=True)
class Models:
    """What services may run. `weights`: how often, by model, next to the others."""

    gpu: str
    longest: int  # tokens of prompt and output
    weights: Mapping[str, int]


TODAY = Models("H100", LONGEST, {"llama-3-8b": 4, "mistral-nemo-12b": 3, "qwen3-32b": 2, "llama-3-70b": 1})


@dataclass(frozen=True, slots=True)
class Instance:
    """What is drawn. `rate`: requests/s for each GPU; `requests`: of all services, about."""

    nodes: int
    gpus: int  # of each node
    services: int
    rate: float
    requests: int
    seed: int

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.gpus


def draw(instance: Instance, models: Models = TODAY) -> tuple[list[Service], Nodes]:
    """Draw the instance's services."""
    chance = random.Random(f"placement {instance}")
    gpu = models.gpu
    usable = [model for model in models.weights if min(list_sizes(model, gpu)) <= instance.gpus]
    parts = [chance.paretovariate(SKEW) for _ in range(instance.services)]
    step_tokens, most_running = default_steps(gpu)
    services = []
    for number, part in enumerate(parts):
        [model] = chance.choices(usable, [models.weights[each] for each in usable])
        share = part / sum(parts)
        services.append(
            Service(
                name=f"{model}-{number}",
                requests=_requests(instance, share, models.longest, chance),
                costs={size: catalog.find_cost_model(model, gpu, size) for size in list_sizes(model, gpu)},
                weight_bytes=catalog.find_shape(model).weight_bytes,
                kv_bytes_per_token=catalog.find_shape(model).kv_bytes_per_token,
                longest=models.longest,
                slo=Slo(e2e_scale_percent=100 * SLO_SCALE),
                step_tokens=step_tokens,
                most_running=most_running,
            )
        )
    return services, Nodes(
        (instance.gpus,) * instance.nodes, int(catalog.gpu_bytes(gpu) * UTILIZATION), RESERVED
    )


def _requests(instance: Instance, share: float, longest: int, chance: random.Random) -> tuple[Request, ...]:
    count = max(round(instance.requests * share), LEAST_REQUESTS)
    seconds = instance.requests / (instance.rate * instance.total_gpus)
    workload = f"{chance.choice(LENGTHS)}-{chance.choice(GAPS)}"
    arrivals = workloads.make(workload, count, count / seconds, chance.randrange(1000), longest=longest)
    return tuple(Request(each.at, each.prompt_tokens, each.output_tokens) for each in arrivals)
