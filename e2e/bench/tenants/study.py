"""What a neighbour in the cluster can do to other services: `python -m e2e.bench.tenants`; part of `attacks`.

The chart on a real API server, with its operator, picker and Envoy as processes, in a network of their own;
only kubelets and engines are played here. A service `chat` is its owner's. Then somebody with the role `edit`
in another namespace, or with a stolen token, tries to get its requests, to speak for it, or to end the parts
that all share. The owner's service must still be served by its own engine, and be told of truthfully.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import helm
from e2e.bench.attacks.cases import Message, chat
from e2e.bench.gateway.testbed import HOST, resident_bytes
from e2e.bench.runs.command_line import describe
from e2e.bench.tenants import cases
from e2e.bench.tenants.cases import APPS, CORE, HEADRACE, MERGE, OWNER, TENANT, Known, Request, path
from e2e.bench.tenants.pods import SECRET, Pod, hostile, plain
from e2e.bench.tenants.testbed import Testbed, start_testbed, until
from e2e.monitoring import scrape
from e2e.monitoring.server import Prometheus

HONEST, MINE, STRANGER, AWAY = (f"10.98.0.{number}" for number in (10, 20, 30, 40))
NETWORK = "ip link set lo up; ip addr add 10.98.0.1/24 dev lo"
GROWTH = 24 << 20  # bytes that operator and picker may take more for a pod that answers badly
WHILE = 3.0  # seconds that it does: three failures of a sidecar are told
FORGED = f"""\
headrace_engine_state{{state="Hung",namespace="{OWNER}",service="chat",pod="chat-0"}} 1
headrace_slo_requests_total{{target="All",met="false",exported_namespace="{OWNER}",service="chat"}} 1e9
headrace_service_condition{{namespace="{OWNER}",service="chat",condition="Ready",reason="X"}} 0
headrace_gateway_leader 0
headrace_operator_leader 0
envoy_cluster_upstream_rq_xx{{envoy_cluster_name="{OWNER}/chat",envoy_response_code_class="5"}} 1e9
"""

Body = dict[str, Any]
Outcomes = dict[str, str]  # by attack: what was wrong with its outcome, or nothing
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """The cluster, and who listens in it."""

    testbed: Testbed
    honest: Pod
    mine: Pod
    stranger: Pod
    away: Pod
    known: Known

    async def truth(self) -> str:
        """Say what is wrong with the owner's service; empty if nothing is."""
        before = self.honest.served(), self.mine.served(), self.stranger.served()
        status = await self.post("chat")
        if status != 200:
            return f"the owner's requests get {status}"
        served = self.honest.served(), self.mine.served(), self.stranger.served()
        if served != (before[0] + 1, *before[1:]):
            return "the owner's request went elsewhere"
        told = await self.testbed.condition(OWNER, "chat", "PolicyApplied")
        return "" if told.get("status") == "True" else f"the owner is told {told.get('message')}"

    async def post(self, model: str) -> int:
        """Send a client's request; the status of the answer, 0 if there is none."""
        data = Message(body=chat(model), key=None).encode()
        reader, writer = await asyncio.open_connection(HOST, self.testbed.gateway.ports["gateway"])
        try:
            writer.write(data)
            async with asyncio.timeout(20.0):
                line = await reader.readline()
        finally:
            writer.close()
        return int(line.split()[1]) if line else 0


def service(namespace: str, name: str, served: str) -> Body:
    """Describe a small LLMService."""
    spec = {
        "model": {"source": "hf://a/b", "servedName": served},
        "engine": {"image": "vllm"},
        "accelerator": {"type": "GPU"},
        "replicas": 1,
        "scheduling": {"policy": "FCFS"},
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "headrace.dev/v1alpha1", "kind": "LLMService", "metadata": metadata, "spec": spec}


@asynccontextmanager
async def set_up(folder: Path) -> AsyncIterator[Setup]:
    """Set up two services, each with an engine."""
    async with start_testbed(folder) as it:
        pods = [await Pod(address).start() for address in (HONEST, MINE, STRANGER, AWAY)]
        found = {}
        for namespace, name, pod in ((OWNER, "chat", pods[0]), (TENANT, "mine", pods[1])):
            services = path(HEADRACE, namespace, "llmservices")

            async def known(services: str = services) -> bool:
                return "items" in await it.admin("GET", services)

            await until(known, "definition of LLMServices")
            await it.admin("POST", services, service(namespace, name, name))
            found[name] = await it.start_pod(name, namespace, pod.address)
            pod.policy = await policy(it, namespace, name)
        await it.admin("PATCH", f"{CORE}/namespaces/{TENANT}", {"metadata": {"labels": _ADMIN_ACCESS}}, MERGE)
        foreign = {"name": "foreign", "namespace": TENANT}
        container = {"name": "c", "image": "x"}
        await it.admin("POST", path(CORE, TENANT, "configmaps"), {"metadata": foreign, "data": {"a": "b"}})
        await it.admin(
            "POST", path(CORE, TENANT, "pods"), {"metadata": foreign, "spec": {"containers": [container]}}
        )
        mine = await it.admin("GET", path(HEADRACE, TENANT, "llmservices", "mine"))
        honest, own, stranger, away = pods
        listening = Setup(
            it,
            honest,
            own,
            stranger,
            away,
            Known(mine["metadata"]["uid"], found["mine"]["metadata"]["name"], "foreign"),
        )

        async def at_work() -> bool:
            return not await listening.truth()

        await it.gateway.ready(2)
        await until(at_work, "request that is served")
        yield listening
        for pod in pods:
            pod.stop()


_ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}  # without it such claims are refused anyway


async def policy(it: Testbed, namespace: str, name: str) -> str:
    """Return the hash of the policy document that is in force."""
    found = await it.admin("GET", path(CORE, namespace, "configmaps", f"{name}-policy"))
    return str(json.loads(found["data"]["policy.json"])["hash"])


async def campaign(it: Setup, folder: Path, say: Say) -> Outcomes:
    """Try every attack, and return what was wrong with each outcome."""
    outcomes: Outcomes = {}
    for request in cases.forbidden(it.known):
        outcomes[request.name] = await _forbidden(it, request)
    outcomes["the owner, after what was forbidden"] = await it.truth()
    say(f"{len(outcomes)} tried of the API server")
    live: dict[str, Callable[[Setup], Awaitable[str]]] = {
        "a ConfigMap as routes once were": config_map,
        "another policy in the operator's ConfigMap": policy_config_map,
        "a newcomer with the owner's name": newcomer,
        "a service that is renamed to the owner's name": renamed,
        "a service that is named as the owner's long name": long_name,
        "a pod with a service's labels": labelled,
        "a pod that names a ReplicaSet as its maker": made_by_another,
        "a pod of a ReplicaSet that names the Deployment": made_by_forged,
    }
    for name, attack in live.items():
        outcomes[name] = await attack(it) or await it.truth()
    say(f"{len(outcomes)} tried with names and pods")
    for name, answer in hostile(AWAY).items():
        outcomes[f"a pod that answers with {name}"] = await badly_answered(it, answer) or await it.truth()
    say(f"{len(outcomes)} tried with pods that answer badly")
    return outcomes | await asyncio.to_thread(forged_metrics, it, folder)


async def _forbidden(it: Setup, request: Request) -> str:
    status, answer = await it.testbed.send(request)
    return "" if status == 403 else f"status {status}: {answer.get('message', '')[:300]}"


async def _may(it: Setup, method: str, where: str, body: Body, kind: str = cases.JSON) -> Body:
    """Do what the editor may, and return what it makes."""
    status, answer = await it.testbed.send(Request("", "editor", method, where, body, kind))
    if status >= 300:
        raise RuntimeError(f"the editor may not {method} {where}: {answer.get('message')}")
    return answer


async def config_map(it: Setup) -> str:
    """Try what an earlier release's picker took for a route."""
    config = {
        "namespace": TENANT,
        "name": "a",
        "models": ["chat", "stolen"],
        "servedName": "chat",
        "schema": 1,
    }
    metadata = {"name": "a-gateway", "labels": {**cases.MINE, "headrace.dev/gateway-config": "true"}}
    body = {"metadata": metadata, "data": {"gateway.json": json.dumps(config)}}
    await _may(it, "POST", path(CORE, TENANT, "configmaps"), body)
    await asyncio.sleep(1.0)
    return "its route is served" if await it.post("stolen") != 404 else ""


async def policy_config_map(it: Setup) -> str:
    """Try to change a policy: the operator puts back what it says."""
    where = path(CORE, TENANT, "configmaps", "mine-policy")
    before = (await it.testbed.admin("GET", where))["data"]
    await _may(it, "PATCH", where, {"data": {"policy.json": "{}"}}, MERGE)

    async def back() -> bool:
        return bool((await it.testbed.admin("GET", where))["data"] == before)

    await until(back, "policy that was put back")
    return ""


async def _refused(it: Setup, name: str) -> str:
    async def refusal() -> dict[str, str]:
        told = await it.testbed.condition(TENANT, name, "Accepted")
        return told if told.get("status") == "False" else {}

    return "" if await until(refusal, f"refusal of {name}") else "accepted"


async def newcomer(it: Setup) -> str:
    """Try a service that is made with another's name."""
    await _may(it, "POST", path(HEADRACE, TENANT, "llmservices"), service(TENANT, "newcomer", "chat"))
    return await _refused(it, "newcomer")


async def renamed(it: Setup) -> str:
    """Try to take a name by a service made with another, and then patched."""
    services = path(HEADRACE, TENANT, "llmservices")
    await _may(it, "POST", services, service(TENANT, "other", "other"))
    await _may(it, "PATCH", f"{services}/other", {"spec": {"model": {"servedName": "chat"}}}, MERGE)
    return await _refused(it, "other")


async def long_name(it: Setup) -> str:
    """Try to take NAMESPACE/NAME, which is always its service's own."""
    body = service(TENANT, "long", f"{OWNER}/chat")
    status, _ = await it.testbed.send(
        Request("", "editor", "POST", path(HEADRACE, TENANT, "llmservices"), body)
    )
    return await _refused(it, "long") if status < 300 else ""


async def _pod(it: Setup, name: str, owners: list[Body]) -> str:
    metadata = {"name": name, "labels": dict(cases.MINE), "ownerReferences": owners}
    spec = {"containers": [{"name": "engine", "image": "x"}]}
    await _may(it, "POST", path(CORE, TENANT, "pods"), {"metadata": metadata, "spec": spec})
    await it.testbed.place(TENANT, name, STRANGER)
    await asyncio.sleep(2.0)
    return "the operator asked it" if "/status" in it.stranger.asked else ""


def _owner(kind: str, name: str, uid: str) -> Body:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}


async def labelled(it: Setup) -> str:
    """Try a pod with a service's labels that nobody made."""
    return await _pod(it, "labelled", [])


async def made_by_another(it: Setup) -> str:
    """Try the uid of another namespace's ReplicaSet."""
    [found] = (await it.testbed.admin("GET", path(APPS, OWNER, "replicasets")))["items"]
    metadata = found["metadata"]
    return await _pod(it, "made", [_owner("ReplicaSet", metadata["name"], metadata["uid"])])


async def made_by_forged(it: Setup) -> str:
    """Try a ReplicaSet that somebody made, and that names another namespace's Deployment."""
    deployment = await it.testbed.admin("GET", path(APPS, OWNER, "deployments", "chat"))
    labels = {"forged": "true"}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    spec["template"]["spec"] = {"containers": [{"name": "c", "image": "x"}]}  # type: ignore[index]
    owners = [_owner("Deployment", "mine", deployment["metadata"]["uid"])]
    body = {"metadata": {"name": "forged", "ownerReferences": owners}, "spec": spec}
    made = await _may(it, "POST", path(APPS, TENANT, "replicasets"), body)
    return await _pod(it, "forged", [_owner("ReplicaSet", "forged", made["metadata"]["uid"])])


async def badly_answered(it: Setup, answer: Any) -> str:
    """Try a pod of the tenant's own service, which operator and picker ask as they ask all."""
    processes = {name: it.testbed.gateway.processes[name] for name in ("operator", "picker")}
    before = {name: resident_bytes(process.pid) for name, process in processes.items()}
    it.mine.answers = dict.fromkeys(("/status", "/load/stream", "/health"), answer)
    where = path(HEADRACE, TENANT, "llmservices", "mine")
    live = await it.testbed.admin("GET", where)
    changed = "LARRY" if live["spec"]["scheduling"]["policy"] == "FCFS" else "FCFS"
    asked = len(it.mine.asked)
    await _may(it, "PATCH", where, {"spec": {"scheduling": {"policy": changed}}}, MERGE)
    await asyncio.sleep(WHILE)
    it.mine.answers = {}
    for name, process in processes.items():
        if process.poll() is not None:
            return f"the {name} ended"
        grown = resident_bytes(process.pid) - before[name]
        if grown > GROWTH:
            return f"the {name} took {grown >> 20} MiB more"
    told = json.dumps((await it.testbed.admin("GET", where)).get("status", {}))
    if it.away.asked:
        return "it was followed elsewhere"
    if not {"/status", "/load/stream"} & set(it.mine.asked[asked:]):
        return "nobody asked it, so nothing was tried"
    return "it is quoted" if any(text in told for text in (SECRET, AWAY)) else ""


def forged_metrics(it: Setup, folder: Path) -> Outcomes:
    """Try what Prometheus makes of a pod that speaks for others, by the chart's pod monitor."""
    manifests = helm.render({"monitoring": {"podMonitors": {"enabled": True}}})
    [monitor] = (
        m for m in manifests if m["kind"] == "PodMonitor" and m["metadata"]["name"].endswith("engines")
    )
    it.mine.answers = {"/metrics": plain(FORGED.encode())}
    target = scrape.Pod(f"{MINE}:9400", TENANT, "mine-0", "sidecar", {"headrace.dev/service": "mine"})
    with Prometheus(folder, [scrape.of_pods(monitor, [target], "1s")]) as server:
        while not server.query("headrace_engine_state"):
            time.sleep(0.1)
        of_owner = server.query(f'{{namespace="{OWNER}"}}') + server.query('{service="chat"}')
        of_parts = server.query('{__name__=~"headrace_(gateway|operator|service)_.+|envoy_.+"}')
        labels = server.query('{exported_namespace!=""}')
    return {
        "metrics of another service": "series of the owner's" if of_owner else "",
        "metrics of operator, picker and Envoy": "they are taken" if of_parts else "",
        "metrics with labels of discovery": "they are kept" if labels else "",
    }


async def measure(say: Say) -> Outcomes:
    """Run the campaign, in this network."""
    with tempfile.TemporaryDirectory(prefix="tenants-") as folder:
        async with set_up(Path(folder)) as it:
            return await campaign(it, Path(folder), say)


def apart(say: Say) -> Outcomes:
    """Run the campaign in a network namespace of its own, whose addresses pods may have."""
    command = shlex.join([sys.executable, "-m", "e2e.bench.tenants", "--here"])
    run = ["unshare", "--net", "sh", "-c", f"{NETWORK}; exec {command}"]
    done = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the campaign of tenants ended with {done.returncode}")
    *told, outcomes = done.stdout.strip().splitlines()
    for line in told:
        say(line)
    found: Outcomes = json.loads(outcomes)
    return found


def main() -> int:
    """Run it; fails if any got through."""
    parser = describe(__doc__)
    parser.add_argument("--here", action="store_true", help="in this network, outcomes as JSON")
    if parser.parse_args().here:
        print(json.dumps(asyncio.run(measure(lambda text: print(text, flush=True)))))
        return 0
    outcomes = apart(print)
    for name, wrong in outcomes.items():
        print(f"{'✗' if wrong else '✓'} {name} {wrong}")
    return 1 if any(outcomes.values()) else 0
