"""An API server in memory with a pool and its services, and operators that work through their queues."""

import copy

from op_golden import SETTINGS
from op_memory import Memory, Plans, Reports
from op_pools import KEY, pool_body
from op_world import body

from headrace_engine.contracts import loads
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator.api import KIND, POOL_KIND, Key, key_of
from headrace_operator.errors import ApiError
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.event_recorder import EventRecorder
from headrace_operator.run.gateway_key import GatewayKey
from headrace_operator.run.reconcile import Reconciler

CHAT, CODE = Key("llm", "chat"), Key("llm", "code")


class Cluster(Memory):
    """Gives Services their addresses, as the API server does."""

    def store(self, item):
        if item["kind"] == "Service":
            item["spec"].setdefault("clusterIP", "10.0.0.7")
        return super().store(item)

    async def delete(self, kind, namespace, name, uid):
        """A claim stays as long as a pod has it."""
        live = copy.deepcopy(self.objects[kind, name])
        await super().delete(kind, namespace, name, uid)
        if live.get("status", {}).get("reservedFor"):
            live["metadata"]["deletionTimestamp"] = "2026-09-14T10:00:00Z"
            self.store(live)

    def turn_group(self, service):
        data = self.objects["ConfigMap", f"{service}-policy"]["data"]
        return loads(TurnGroup, data["turn-group.json"]) if "turn-group.json" in data else None


class Operator:
    """An operator with its queue, whose cache is what exists."""

    def __init__(self, memory):
        kinds = (KIND, POOL_KIND)
        self.queue = [key_of(item) for item in memory.objects.values() if item["kind"] in kinds]
        self.cache = Cache()
        self.plans = Plans()
        for item in memory.objects.values():
            self.cache.put(copy.deepcopy(item))
        key = GatewayKey(SETTINGS.system_namespace, SETTINGS.gateway_key)
        self.reconciler = Reconciler(
            SETTINGS,
            self.cache,
            memory,
            Reports(),
            EventRecorder(memory),
            lambda: 0.0,
            key,
            self.queue.append,
            self.plans,
        )

    async def work(self):
        while self.queue:
            await self.reconciler.reconcile(self.queue.pop(0))


def with_pool(**groups):
    return with_services(body("chat"), body("code"), **groups)


def with_services(*services, **groups):
    memory = Cluster()
    for raw in (*services, pool_body(**groups)):
        memory.store(raw)
    return memory


def update(memory, raw, kind="LLMService"):
    """Write a new spec, as a user does."""
    old = memory.objects[kind, raw["metadata"]["name"]]
    raw["metadata"]["generation"] = old["metadata"]["generation"] + 1
    memory.store({**raw, "status": old.get("status", {})})


def allocate(memory, name=None):
    """Give a claim its devices, the newest by default, as the scheduler does with the first pod."""
    name = name or claims(memory)[-1]
    results = [{"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-3"}]
    reserved = [{"resource": "pods", "name": "chat-1", "uid": "chat-1"}]
    claim = memory.objects["ResourceClaim", name]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    memory.store({**claim, "status": status})


def claims(memory):
    return [name for kind, name in memory.objects if kind == "ResourceClaim"]


def claim_of(memory, deployment):
    """What pods of a Deployment name: a group's claim, or the template of their own."""
    [named] = memory.objects["Deployment", deployment]["spec"]["template"]["spec"]["resourceClaims"]
    return named.get("resourceClaimName") or named["resourceClaimTemplateName"]


def condition(memory, kind, name="shared", of="GPUPool"):
    conditions = memory.objects[of, name]["status"]["conditions"]
    return next((each["status"], each["reason"]) for each in conditions if each["type"] == kind)


async def settle(memory, answer=None):
    """Have operators start, each with the answer about the plan, until none changes anything."""
    for _ in range(12):
        before = len(memory.writes)
        operator = Operator(memory)
        operator.plans.answers[KEY] = answer
        try:
            await operator.work()
        except ApiError:
            continue
        if len(memory.writes) == before:
            return
    raise AssertionError("it does not settle")
