"""Services that mode Auto places and moves on a running cluster: `python -m e2e.bench.pool_moves`.

Twelve services on sixteen GPUs that are not there: their nodes are kwok's, and stand-ins for their sidecars
tell what they were asked. API server, scheduler, device claims and operator are real. Each begins on GPUs of
its own; a plan by little traffic puts them together, and one by more traffic parts them. Meanwhile the
operator's pods are deleted whenever another service begins to move. Then two services with real engines move,
under the load of `make demo-pool`.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from e2e.bench.pool_moves.asked_pods import HOUR, AskedPods
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.cluster import gpu_nodes, stand_in_sidecars
from e2e.cluster.cluster import Cluster
from e2e.demo import deploy, load_shift, services
from e2e.demo.kube import Kube, Object, condition
from e2e.demo.pools import auto_pool
from e2e.demo.services import NAMESPACE
from e2e.demo.steps import StageError, Steps
from e2e.demo.target import SYSTEM_NAMESPACE
from headrace_operator import names
from headrace_operator.api import API_VERSION, KIND

MODELS = {"llama-3-8b": 6, "mistral-nemo-12b": 4, "qwen3-32b": 2}  # with how many services
NODES, GPUS = 2, 8  # of each node
LITTLE, MUCH = 0.05, 8.0  # requests/s of a service
BUSY = 10  # services that come to have much
READY_SECONDS = 600.0
PLAN_SECONDS = 1800.0  # two plans are ten minutes apart
POOL = "pool"


def main() -> int:
    """Measure, print and write the figures; the exit status says whether all came where they should."""
    describe(__doc__).parse_args()
    steps = Steps()
    try:
        target = deploy.cluster(steps)
        deploy.headrace(target, steps)
        figures = measure(target.kube, steps)
        with load_shift.two_services(target, steps), target.gateway() as url:
            clients = asyncio.run(load_shift.shift_load(target.kube, url, steps))
    except StageError as error:
        steps.say(f"✗ {error}")
        return 1
    figures |= {"requests": len(clients.sent), "requests_lost": len(clients.failed)}
    for name, value in figures.items():
        steps.say(f"  {name}: {value}")
    steps.say(f"written to {results.write('pool', 'python -m e2e.bench.pool_moves', figures)}")
    return 0


def measure(kube: Kube, steps: Steps) -> dict[str, float]:
    """Place the services by little traffic and then by more; returns the figures."""
    cluster = Cluster()
    models = _models()
    asked = {name: _service(name, model) for name, model in models.items()}
    answers = cluster.state / "stand-in-sidecars.json"
    with steps.stage("nodes"):
        gpu_nodes.join(cluster, NODES, GPUS, dra=True)
        stand_in_sidecars.start(cluster, answers)
    pods = AskedPods(kube, NAMESPACE, answers, dict.fromkeys(asked, LITTLE))
    try:
        with steps.stage("services"):
            kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            for manifest in asked.values():
                kube.apply(manifest)
        with pods.answering():
            with steps.stage("engines on GPUs of their own"):
                services.wait_ready(kube, asked, READY_SECONDS, steps.say)
            moves = Moves(kube, steps)
            with steps.stage("a plan by little traffic"):
                pods.asked_since = time.time() - HOUR
                kube.apply(auto_pool(POOL, {"type": "H100", "perNode": GPUS, "count": NODES * GPUS}, models))
                moves.carry_out()
            with steps.stage("a plan by more traffic"):
                pods.rates.update(dict.fromkeys(list(asked)[:BUSY], MUCH))
                moves.carry_out()
    finally:
        kube("delete", "gpupool", POOL, "-n", NAMESPACE, "--ignore-not-found")
        for name in asked:
            kube("delete", "llmservice", name, "-n", NAMESPACE, "--ignore-not-found", "--wait=false")
    return {
        "services": len(asked),
        "gpus": NODES * GPUS,
        "replaced": moves.replaced,
        "misplaced": moves.misplaced,
        "operators_killed": moves.killed,
        "plan_to_ready_seconds": round(max(moves.seconds), 1),
        "gpus_little_traffic": moves.gpus[0],
        "gpus_more_traffic": moves.gpus[1],
    }


@dataclass
class Moves:
    """What mode Auto did so far."""

    kube: Kube
    steps: Steps
    replaced: int = 0  # services that a plan put elsewhere
    misplaced: int = 0  # whose engines are not where they are said to be
    killed: int = 0
    seconds: list[float] = field(default_factory=list)  # from each plan to its end
    gpus: list[int] = field(default_factory=list)  # that each plan takes
    _placed: dict[str, Object] = field(default_factory=dict)

    def carry_out(self) -> None:
        """Wait until another plan has been carried out, and delete the operator's pods as it is."""
        deadline = time.monotonic() + PLAN_SECONDS
        told = ""
        while True:
            pool = self.kube.get(NAMESPACE, "gpupool", POOL)
            status, as_planned = pool.get("status", {}), condition(pool, "AsPlanned")
            placed = {each["name"]: each for each in status.get("placement", {}).get("services", ())}
            reason, message = as_planned.get("reason", ""), as_planned.get("message", "")
            if message != told:
                self.steps.say(f"  {reason}: {message}")
                told = message
                if reason == "Moving":
                    self._kill_operator()
            if placed not in ({}, self._placed) and reason == "NothingToMove":
                break
            if time.monotonic() > deadline:
                raise services.NotReadyError(f"not as planned in {PLAN_SECONDS:.0f} s: {reason}: {message}")
            time.sleep(1)
        self.seconds.append(time.time() - datetime.fromisoformat(status["placement"]["time"]).timestamp())
        self.replaced += sum(_place(each) != _place(self._placed.get(name)) for name, each in placed.items())
        self._placed = placed
        self._look(placed)

    def _kill_operator(self) -> None:
        operators = "app.kubernetes.io/component=operator"
        self.kube("delete", "pods", "-n", SYSTEM_NAMESPACE, "-l", operators, "--force", "--grace-period=0")
        self.killed += 1

    def _look(self, placed: Mapping[str, Object]) -> None:
        """Count whose devices are not as planned."""
        found = devices(self.kube, placed)
        groups: dict[str, set[str]] = {}
        for name, each in placed.items():
            theirs = found[name]
            groups.setdefault(each.get("group", name), set()).update(theirs)
            if len(theirs) != each["tensorParallelSize"] * each["replicas"]:
                self.steps.say(f"  {name} has {sorted(theirs)}, planned is {each}")
                self.misplaced += 1
        self.gpus.append(len(set().union(*groups.values())))
        if self.gpus[-1] != sum(map(len, groups.values())):
            self.steps.say(f"  groups share devices: {groups}")
            self.misplaced += 1


def devices(kube: Kube, asked: Mapping[str, Object]) -> dict[str, set[str]]:
    """Return the devices that each service's pods have."""
    claims = {}
    for claim in kube.items(NAMESPACE, "resourceclaims"):
        allocated = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        claims[claim["metadata"]["name"]] = {f"{each['pool']}/{each['device']}" for each in allocated}
    found: dict[str, set[str]] = {name: set() for name in asked}
    for pod in kube.items(NAMESPACE, "pods", names.SERVICE_LABEL):
        name = pod["metadata"]["labels"][names.SERVICE_LABEL]
        if name in found and "deletionTimestamp" not in pod["metadata"]:
            made = {each["name"]: each for each in pod["status"].get("resourceClaimStatuses", ())}
            for claim in pod["spec"].get("resourceClaims", ()):
                found[name] |= claims[{**claim, **made.get(claim["name"], {})}["resourceClaimName"]]
    return found


def _models() -> dict[str, str]:
    """Return the services' models."""
    models = [model for model, count in MODELS.items() for _ in range(count)]
    return {f"asked-{number}": model for number, model in enumerate(models)}


def _service(name: str, model: str) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "model": {"source": f"hf://example/{model}", "servedName": name},
            "engine": {"image": "example/vllm:1", "maxModelLen": 8192},
            "accelerator": {"type": "GPU", "dra": {"deviceClassName": gpu_nodes.DRIVER}},
            "slo": {"e2eScalePercent": 500},
            "podTemplate": {"tolerations": [{"key": gpu_nodes.LABEL, "operator": "Exists"}]},
        },
    }


def _place(placed: Object | None) -> Object:
    """Return where a service is placed, but for the memory that it has there."""
    return {key: (placed or {}).get(key) for key in ("group", "replicas", "tensorParallelSize")}
