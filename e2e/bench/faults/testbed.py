"""What a campaign does to the local cluster, and what it sees there.

Only what is known for certain is killed: containers by their containerd id, the node's programs by the pid
that was written when they started.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx

from e2e.bench.faults.cases import COMPONENTS, Part, Step
from e2e.bench.faults.figures import Damage, Kill
from e2e.bench.switch import scheduling
from e2e.cluster import components, node_files
from e2e.cluster.cluster import Cluster
from e2e.cluster.ready import is_ready
from e2e.demo import services
from e2e.demo.kube import Kube, KubeError, Object, condition
from e2e.demo.services import NAMESPACE
from e2e.demo.target import SYSTEM_NAMESPACE

TIMEOUT = 180.0  # seconds; who is not back by then is not waited for
POLL = 0.25
STEADY_SECONDS = 2.0
NO_ENGINE = ("no healthy upstream", "has no ready engine")  # what clients are told when a service has none

Strike = Callable[[], float]
_CONTAINERS: Mapping[Part, tuple[str, str]] = {  # label `app.kubernetes.io/component`, container
    "operator": ("operator", "operator"),
    "picker": ("picker", "picker"),
    "envoy": ("gateway", "envoy"),
    "sidecar": ("", "headrace-sidecar"),
    "engine": ("", "engine"),
}
_OWNED = "deployments,services,configmaps,networkpolicies,poddisruptionbudgets,resourceclaimtemplates,pods"
_READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


@dataclass(frozen=True, slots=True)
class Inventory:
    """What Headrace has in the services' namespace."""

    uids: frozenset[str]
    engines: Mapping[str, int]  # restarts of the engine container, by the pod's uid


@dataclass(frozen=True, slots=True)
class Testbed:
    """The cluster, and the gateway's URL."""

    kube: Kube
    cluster: Cluster
    url: str

    def inventory(self) -> Inventory:
        """List every object and engine there is."""
        items = self.kube.items(NAMESPACE, _OWNED, "app.kubernetes.io/managed-by=headrace")
        pods = [item for item in items if item["kind"] == "Pod"]
        return Inventory(
            frozenset(item["metadata"]["uid"] for item in items),
            {pod["metadata"]["uid"]: _container(pod, "engine")["restartCount"] for pod in pods},
        )

    def pods(self, part: Part, service: str = "") -> list[Object]:
        """List the pods that a part runs in, of one service if it runs beside engines; by name."""
        component, _ = _CONTAINERS[part]
        if component:
            found = self.kube.items(SYSTEM_NAMESPACE, "pods", f"app.kubernetes.io/component={component}")
        else:
            found = self.kube.items(NAMESPACE, "pods", f"headrace.dev/service={service}")
        alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(alive, key=lambda pod: str(pod["metadata"]["name"]))

    def change(self, service: str, number: int) -> None:
        """Ask a service for the n-th policy."""
        spec = {"scheduling": scheduling(number)}
        self.kube.patch(NAMESPACE, "llmservice", service, {"spec": spec})

    def settled(self) -> bool:
        """Tell whether all is as wanted: node, Headrace's own pods, and every service by its conditions."""
        node = self.kube.get(NAMESPACE, "node", node_files.NODE_NAME)
        deployments = self.kube.items(SYSTEM_NAMESPACE, "deployments")
        asked = self.kube.items(NAMESPACE, "llmservices")
        return (
            condition(node, "Ready").get("status") == "True"
            and all(d["status"].get("availableReplicas", 0) == d["spec"]["replicas"] for d in deployments)
            and all(services.serves(service) for service in asked)
        )

    def healed(self) -> float:
        """Return when all was as wanted and stayed so: a kubelet that starts soon takes back what it said."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            at = until(self.settled)
            time.sleep(STEADY_SECONDS)
            if holds_now(self.settled) or at > deadline:
                return at

    def policies(self) -> dict[str, str]:
        """Return what each engine runs, by its pod's uid, as its sidecar says."""
        found = {}
        for pod in self.kube.items(NAMESPACE, "pods", "app.kubernetes.io/managed-by=headrace"):
            place = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:9400/proxy/status"
            policy = json.loads(self.kube("get", "--raw", place))["policy"]
            found[pod["metadata"]["uid"]] = f"{policy['name']} {policy['appliedHash']}"
        return found

    def operator_requests(self, pods: list[Object]) -> float:
        """Return how many requests to the API server the operator in these pods has counted."""
        total = 0.0
        for pod in pods:
            text = self.read(f"http://{pod['status']['podIP']}:9090/metrics")
            lines = [
                line for line in text.splitlines() if line.startswith("headrace_operator_api_requests_total")
            ]
            total += sum(float(line.rsplit(" ", 1)[1]) for line in lines)
        return total

    def read(self, url: str) -> str:
        """Fetch an HTTP answer, from inside the cluster's network."""
        command = [*self.cluster.enter(), sys.executable, "-c", _READ, url]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    def kill(self, step: Step, number: int) -> Kill:
        """Change the step's service, kill the part; wait until it is back and all is as asked for."""
        strike, back = self.aim(step.part, step.service, step.which)
        self.change(step.service, number)
        time.sleep(step.head_start)
        at = strike()
        return Kill(step.part, at, until(back), self.healed())

    def kill_engine(self, step: Step) -> Kill:
        """Kill an engine; wait until it serves again."""
        spare = len(self.pods("engine", step.service)) > 1
        strike, back = self.aim("engine", step.service, step.which)
        at = strike()
        noticed = None if spare else until(lambda: self._without_engine(step.service), every=0.1)
        returned = until(back)
        served = until(lambda: "choices" in self._ask(step.service))
        return Kill("engine", at, returned, served, step.service, spare, noticed)

    def aim(self, part: Part, service: str = "", which: float = 0.0) -> tuple[Strike, Callable[[], bool]]:
        """Aim at a part: how to kill it, which gives the time before, and how to tell that it is back."""
        if part in COMPONENTS:
            return self._aim_at_component(part)
        pods = self.pods(part, service)
        pod = pods[int(which * len(pods))]
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        container = _CONTAINERS[part][1]
        identifier = _container(pod, container)["containerID"]

        def strike() -> float:
            at = time.monotonic()  # before: on a busy machine the command ends long after the container
            self.cluster.kill_container(identifier.removeprefix("containerd://"))
            return at

        def back() -> bool:
            now = self.kube.get(namespace, "pod", name)
            status = _container(now, container)
            fresh = status.get("containerID") != identifier and "running" in status["state"]
            return fresh and condition(now, "Ready").get("status") == "True"

        return strike, back

    def _aim_at_component(self, part: Part) -> tuple[Strike, Callable[[], bool]]:
        record = self.cluster.state / "pids" / part
        pid = record.read_text()

        def strike() -> float:
            at = time.monotonic()
            self.cluster.kill(part)
            return at

        return strike, lambda: record.read_text() not in {"", pid} and self._answers(part)

    def _answers(self, part: Part) -> bool:
        if part == "kubelet":
            return self.read("http://127.0.0.1:10248/healthz").strip() == "ok"
        return is_ready(components.Files(self.cluster.state), self.cluster.url)

    def _without_engine(self, service: str) -> bool:
        answer = self._ask(service)
        return any(told in answer for told in NO_ENGINE)

    def _ask(self, service: str) -> str:
        """Send a short request of our own; returns the answer's body."""
        body = {"model": service, "prompt": "a", "max_tokens": 1}
        return httpx.post(f"{self.url}/v1/completions", json=body, timeout=30, trust_env=False).text


def holds_now(holds: Callable[[], bool]) -> bool:
    """Tell whether it holds; what cannot be asked does not."""
    with contextlib.suppress(KubeError, httpx.HTTPError, OSError, subprocess.SubprocessError):
        return holds()
    return False


def until(holds: Callable[[], bool], timeout: float = TIMEOUT, every: float = POLL) -> float:
    """Wait until it holds, `timeout` seconds at most; returns when that was."""
    deadline = time.monotonic() + timeout
    while True:
        if holds_now(holds):
            return time.monotonic()
        if time.monotonic() > deadline:
            return time.monotonic()
        time.sleep(every)


def damage(before: Inventory, after: Inventory, killed: int = 0) -> Damage:
    """Return what became of objects and engines; `killed` engines were to restart."""
    restarts = sum(after.engines.get(uid, count + 1) - count for uid, count in before.engines.items())
    return Damage(restarts - killed, len(before.uids - after.uids))


def _container(pod: Object, name: str) -> Object:
    status = pod["status"]
    all_of_them = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    found: Object = next(each for each in all_of_them if each["name"] == name)
    return found
