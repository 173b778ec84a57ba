"""An API server in memory, for tests that fail it at every single call.

It knows just what the reconciler needs: apply replaces our fields, reads return copies, versions grow.
"""

import copy
import itertools

from op_golden import SETTINGS
from op_world import MAKER, body

from headrace_operator.errors import ApiError
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.event_recorder import EventRecorder
from headrace_operator.kube.kinds import resource
from headrace_operator.names import FIELD_MANAGER
from headrace_operator.run.gateway_key import GatewayKey
from headrace_operator.run.pool_planner import PoolPlanner
from headrace_operator.run.reconcile import Reconciler
from headrace_operator.run.sidecar_status import SidecarStatuses


class Memory:
    """Objects by (kind, name). `fail(call number, "before" | "after")` makes one call fail."""

    def __init__(self):
        self.objects = {}
        self.versions = itertools.count(100)
        self.writes = []
        self.calls = 0
        self.failing = None
        self.meanwhile = {}  # call number → what somebody else does before it
        self.events = []  # what the watches would bring, oldest first
        self.down = False
        self.refusal = None  # what is said to a write of `refused`, if `refuses(manifest, dry_run)`
        self.refused = "Deployment"
        self.refuses = lambda manifest, dry_run: True
        self.dry_runs = 0
        self.undeletable = None  # what is said to each deletion

    def fail(self, call, when):
        self.failing = (call, when)

    async def read(self, kind, namespace, name):
        async with _Call(self):
            if (kind, name) == (MAKER["kind"], MAKER["name"]):
                return self._replica_set()
            return copy.deepcopy(self.objects.get((kind, name)))

    def _replica_set(self):
        """What a Deployment controller would have made of the Deployment."""
        made_for = self.objects["Deployment", "chat"]["metadata"]["uid"]
        owners = [{"kind": "Deployment", "name": "chat", "uid": made_for, "controller": True}]
        return {"kind": MAKER["kind"], "metadata": {"uid": MAKER["uid"], "ownerReferences": owners}}

    async def apply(self, manifest, dry_run=False):
        async with _Call(self):
            self.dry_runs += dry_run
            if self.refusal and manifest["kind"] == self.refused and self.refuses(manifest, dry_run):
                raise self.refusal
            if dry_run:
                return manifest
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            new = copy.deepcopy(manifest)
            old = self.objects.get((kind, name), {"metadata": {"uid": f"{kind}-{name}", "generation": 1}})
            managed = [{"manager": FIELD_MANAGER, "operation": "Apply"}]
            new["metadata"] |= {"uid": old["metadata"]["uid"], "generation": 1, "managedFields": managed}
            return self.store(new)

    async def create(self, manifest):
        async with _Call(self):
            return self.store(copy.deepcopy(manifest))

    async def apply_status(self, kind, namespace, name, status):
        async with _Call(self):
            return self.store({**self.objects[kind, name], "status": copy.deepcopy(status)})

    async def annotate(self, kind, namespace, name, annotations):
        async with _Call(self):
            new = copy.deepcopy(self.objects[kind, name])
            new["metadata"].setdefault("annotations", {}).update(annotations)
            return self.store(new)

    async def set_condition(self, namespace, pod, uid, condition):
        async with _Call(self):
            new = copy.deepcopy(self.objects["Pod", pod])
            others = [each for each in new["status"]["conditions"] if each["type"] != condition["type"]]
            new["status"]["conditions"] = [*others, condition]
            return self.store(new)

    async def scale(self, namespace, deployment, replicas):
        async with _Call(self):
            if self.refusal and self.refused == "Scale":
                raise self.refusal
            new = copy.deepcopy(self.objects["Deployment", deployment])
            new["spec"]["replicas"] = replicas
            self.store(new)

    async def delete(self, kind, namespace, name, uid):
        async with _Call(self):
            if self.undeletable:
                raise self.undeletable
            self.writes.append(("delete", kind, name))
            del self.objects[kind, name]

    async def create_event(self, event):
        async with _Call(self):
            return True

    async def repeat_event(self, namespace, name, count, now):
        async with _Call(self):
            pass

    def store(self, item):
        kind, name = item["kind"], item["metadata"]["name"]
        resource(kind)  # only kinds that the operator knows
        item["metadata"]["resourceVersion"] = str(next(self.versions))
        self.writes.append(("write", kind, name))
        self.objects[kind, name] = item
        self.events.append(copy.deepcopy(item))
        return copy.deepcopy(item)

    def owned(self):
        """Everything but the service and its versions, for comparison."""
        return {
            key: {**item, "metadata": {**item["metadata"], "resourceVersion": ""}}
            for key, item in self.objects.items()
            if key[0] != "LLMService"
        }


class _Call:
    def __init__(self, memory):
        self.memory = memory

    async def __aenter__(self):
        self.memory.calls += 1
        self.number = self.memory.calls
        self.memory.meanwhile.pop(self.number, lambda: None)()
        if self.memory.down or self.memory.failing == (self.number, "before"):
            raise ApiError(503, "unavailable")

    async def __aexit__(self, kind, error, trace):
        if error is None and self.memory.failing == (self.number, "after"):
            raise ApiError(0, "the answer was lost")


class Reports(SidecarStatuses):
    """Reports as the test sets them, by pod uid."""

    def __init__(self):
        super().__init__(None, lambda key: None)
        self.said = {}

    def follow(self, key, pods, wanted):
        pass

    def reports(self, key):
        return self.said


class Plans(PoolPlanner):
    """Answers as the test sets them, by pool."""

    def __init__(self):
        super().__init__(None, None, lambda key: None)
        self.looks = {}
        self.answers = {}

    def follow(self, key, generation, look):
        self.looks[key] = look

    def forget(self, key):
        self.looks.pop(key, None)

    def answer(self, key, generation):
        return self.answers.get(key)


def operator(memory, settings=SETTINGS, clock=lambda: 0.0):
    """A freshly started operator: its cache is what exists."""
    cache = Cache()
    for item in memory.objects.values():
        cache.put(copy.deepcopy(item))
    key = GatewayKey(settings.system_namespace, settings.gateway_key)
    return Reconciler(
        settings, cache, memory, Reports(), EventRecorder(memory), clock, key, lambda _: None, Plans()
    )


def with_service(**spec):
    """A Memory that holds one LLMService."""
    memory = Memory()
    memory.store(body(**spec))
    memory.writes.clear()
    return memory


def update(memory, **spec):
    """The user changes the spec."""
    old = memory.objects["LLMService", "chat"]
    new = body(**spec) | {"status": old.get("status", {})}
    new["metadata"]["generation"] = old["metadata"]["generation"] + 1
    memory.store(new)
