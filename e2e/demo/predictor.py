"""What the simulator says of a part of the demo before it runs, from how fast the engines were so far.

Each engine's sidecar tells how long its steps take (`GET :9400/cost`) and how many KV blocks it has. So the
worker of `headrace simulate` serves the requests to come: vLLM's scheduler, the service's policy and its
balancer on a virtual clock, in a process of its own.
"""

import multiprocessing
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self

from e2e.demo.kube import Kube, Object
from e2e.demo.metrics import Sample
from e2e.demo.services import NAMESPACE, sidecar
from headrace_engine.contracts import PolicyDocument
from headrace_engine.cost.fit import cost_numbers, read_cost
from headrace_engine.cost.forms import Linear
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.api import parse_service, policy_document
from headrace_operator.desired.llm_route import gateway_config
from headrace_operator.simulate.jobs import Job, World
from headrace_operator.simulate.models import Served
from headrace_operator.simulate.simulated_engine import make_engine
from headrace_operator.simulate.targets import choose_targets

SECONDS = 180.0  # that a prediction may take: the first one may have to wait until vLLM is imported
UNKNOWN = Served("", None, told=True)  # no model of the catalogue: the engine says itself how fast it is


@dataclass(frozen=True, slots=True)
class Learned:
    """What the engines of a service told."""

    service: Object  # as the API server has it
    cost: Linear  # the mean of its engines
    kv_blocks: int  # of the engine with the fewest


def learn(kube: Kube, name: str) -> Learned:
    """Ask the service's engines; raises KubeError."""
    pods = kube.items(NAMESPACE, "pods", f"headrace.dev/service={name}")
    told = [cost_numbers(read_cost(sidecar(kube, pod, "/cost"))) for pod in pods]
    blocks = [sidecar(kube, pod, "/load")["totalKvBlocks"] + 1 for pod in pods]  # one is vLLM's null block
    mean = {term: statistics.fmean(each[term] for each in told) for term in told[0]}
    return Learned(kube.get(NAMESPACE, "llmservice", name), read_cost(mean), min(blocks))


def make_world(learned: Learned, arrivals: Sequence[Arrival]) -> World:
    """Make the world in which these requests reach the service; raises UsageError."""
    manifest = _changed(learned.service, "engine", args=_arguments(learned))
    service = parse_service(manifest)
    settings = make_engine(service, UNKNOWN, learned.cost.profile).settings
    if not service.on_gpu:
        settings = replace(settings, async_scheduling=False)  # vLLM has it off on CPUs
    return World(
        arrivals=tuple(arrivals),
        seconds=arrivals[-1].at,
        settings=settings,
        cost=learned.cost,
        gateway=replace(
            gateway_config(service, (service.served_name,)), prefix_caching=settings.prefix_caching
        ),
        slo=choose_targets(service)[0],
        seed=0,
    )


def document(learned: Learned, policy: str) -> PolicyDocument:
    """Make the document that the operator would hand to the engines under this policy."""
    return policy_document(parse_service(_changed(learned.service, "scheduling", policy=policy)))


def as_sample(service: str, outcome: Outcome) -> Sample:
    """Return what a client would see of a simulated request."""
    ttft, tpot, e2e = outcome.ttft, outcome.tpot, outcome.e2e
    if ttft is None or tpot is None or e2e is None:
        return Sample(service, outcome.arrival.at, error="refused")
    tokens = outcome.arrival.output_tokens
    return Sample(service, outcome.arrival.at, ttft, tpot, outcome.longest_gap, e2e, tokens)


class Predictor:
    """A process that simulates."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def __enter__(self) -> Self:
        """Start the process; it imports vLLM, which takes seconds, while other things go on."""
        self._pool.submit(_warm_up)
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def predict(
        self, learned: Learned, arrivals: Sequence[Arrival], policies: Sequence[str]
    ) -> list[list[Sample]]:
        """Serve the requests under each policy; raises UsageError, TimeoutError."""
        world = make_world(learned, arrivals)
        replicas = parse_service(learned.service).replicas
        jobs = [Job(document(learned, policy), replicas) for policy in policies]
        name = learned.service["metadata"]["name"]
        served = self._pool.submit(_serve, world, jobs).result(SECONDS)
        return [[as_sample(name, outcome) for outcome in outcomes] for outcomes in served]


def _changed(manifest: Object, block: str, **fields: Any) -> Object:
    spec = manifest["spec"]
    return {**manifest, "spec": {**spec, block: {**spec.get(block, {}), **fields}}}


def _arguments(learned: Learned) -> list[str]:
    """Return vLLM's arguments with the KV cache that the engines really have."""
    given = learned.service["spec"]["engine"].get("args", [])
    return [
        *(each for each in given if not each.startswith("--num-gpu-blocks-override")),
        f"--num-gpu-blocks-override={learned.kv_blocks}",
    ]


def _warm_up() -> None:
    from headrace_operator.simulate import quiet, worker  # noqa: F401, PLC0415  it imports vLLM


def _serve(world: World, jobs: Sequence[Job]) -> list[list[Outcome]]:
    from headrace_operator.simulate import worker  # noqa: PLC0415  it imports vLLM

    return [worker.serve(world, job).outcomes for job in jobs]
