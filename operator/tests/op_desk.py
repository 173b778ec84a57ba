"""An operator without its watches: the test says what it has seen of a real API server, and when it dies."""

import asyncio
import dataclasses
import time

from op_golden import SETTINGS
from op_memory import Plans, Reports

from headrace_operator import names
from headrace_operator.api import Key, parse_service
from headrace_operator.decide.model_names import served_model_names
from headrace_operator.decide.plan import contains_fields
from headrace_operator.desired import desired_objects
from headrace_operator.errors import ApiError, RefusedError
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.event_recorder import EventRecorder
from headrace_operator.kube.kinds import OWNERS, SERVICE, WATCHED
from headrace_operator.kube.resync import resync
from headrace_operator.run.gateway_key import GatewayKey
from headrace_operator.run.reconcile import Reconciler
from headrace_operator.run.workqueue import WorkQueue

_STILL = 0.2  # seconds; controllers that have something to do take less for each step
_MADE_BY_SERVER = {"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields"}
_TOLD_BY_OTHERS = {names.APPLIED_HASH, "deployment.kubernetes.io/revision"}  # the hash covers the owner's uid


class KilledError(BaseException):
    """The operator's process ends here; nothing of it may catch this."""


class Wire:
    """The operator's way to the API server. `dies_at`: the number of the call that is not made any more."""

    def __init__(self, api):
        self._api = api
        self.dies_at = None
        self.calls = []
        self.deleted = []
        self.wrong = []  # deletions of what the service as it was then wanted

    @property
    def writes(self):
        return [
            call for call in self.calls if call[0] not in {"read", "dry run", "create_event", "repeat_event"}
        ]

    async def read(self, kind, namespace, name):
        self._call("read", kind, name)
        return await self._api.read(kind, namespace, name)

    async def apply(self, manifest, *, dry_run=False):
        self._call("dry run" if dry_run else "apply", manifest["kind"], manifest["metadata"]["name"])
        return await self._api.apply(manifest, dry_run=dry_run)

    async def apply_status(self, kind, namespace, name, status):
        self._call("status", kind, name)
        return await self._api.apply_status(kind, namespace, name, status)

    async def annotate(self, kind, namespace, name, annotations):
        self._call("annotate", kind, name)
        return await self._api.annotate(kind, namespace, name, annotations)

    async def delete(self, kind, namespace, name, uid):
        self._call("delete", kind, name)
        self.deleted.append((kind, name))
        if await self._wanted(kind, namespace, name, uid):
            self.wrong.append((kind, name))
        await self._api.delete(kind, namespace, name, uid)

    async def create_event(self, event):
        self._call("create_event", "Event", event["metadata"]["name"])
        return await self._api.create_event(event)

    async def repeat_event(self, namespace, name, count, now):
        self._call("repeat_event", "Event", name)
        await self._api.repeat_event(namespace, name, count, now)

    def _call(self, *call):
        if self.dies_at is not None and len(self.calls) + 1 >= self.dies_at:
            raise KilledError
        self.calls.append(call)

    async def _wanted(self, kind, namespace, name, uid):
        """Whether the service, as it is at this moment, wants the live object of this uid as it is."""
        live = await self._api.read(kind, namespace, name)
        if live is None or live["metadata"]["uid"] != uid:
            return False
        body = await self._api.read("LLMService", namespace, live["metadata"]["labels"][names.SERVICE_LABEL])
        if body is None:
            return False
        for manifest in manifests(body):
            if (manifest["kind"], manifest["metadata"]["name"]) == (kind, name):
                return contains_fields(live.get("spec"), manifest.get("spec"))
        return False


class Desk:
    """One namespace, at most one operator at a time; `api` is the administrator's, `own` the operator's."""

    def __init__(self, api, own, namespace, name="chat"):
        self.api, self.key = api, Key(namespace, name)
        self.wire = Wire(own)
        self.operator = None
        self._looked = None  # what was seen of the Deployment last
        self.now = 0.0  # each reconcile comes late enough for everything that waits

    async def everything(self):
        """All that the operator would list."""
        for target in WATCHED:
            async for body in self.api.list_objects(
                target, self.key.namespace, "" if target in OWNERS else names.SELECTOR
            ):
                yield body

    async def start(self, settings=SETTINGS):
        """A fresh process: it knows what there is, and nothing of what was before."""
        cache = Cache()
        key = GatewayKey(settings.system_namespace, settings.gateway_key)
        self.operator = Reconciler(
            settings,
            cache,
            self.wire,
            Reports(),
            EventRecorder(self.wire),
            lambda: self.now,
            key,
            lambda _: None,
            Plans(),
        )
        await self.catch_up()
        return self.operator

    def remembered(self):
        """What the operator knows of."""
        kinds = [target.kind for target in WATCHED]
        return [body for kind in kinds for body in self.operator.cache.objects_of_kind(kind)]

    def seen(self):
        """Versions of what the operator knows, but for the service itself."""
        known = [body["metadata"] for body in self.remembered() if body["kind"] != SERVICE.kind]
        return {metadata["uid"]: metadata["resourceVersion"] for metadata in known}

    async def catch_up(self):
        """The watches deliver everything, also what was deleted."""
        cache, there = self.operator.cache, set()
        async for body in self.everything():
            cache.put(body)
            there.add(body["metadata"]["uid"])
        for body in self.remembered():
            if body["metadata"]["uid"] not in there:
                cache.drop(body)

    async def work(self):
        """One reconcile of what the operator knows; whether there is nothing left to do or to wait for."""
        self.now += 60.0
        before = len(self.wire.writes)
        try:
            again = await self.operator.reconcile(self.key)
        except ApiError:
            return False
        return again is None and len(self.wire.writes) == before

    async def settle(self, settings=SETTINGS):
        """A fresh operator that sees everything works until it has nothing to write."""
        await self.start(settings)
        await self._until_done(self.catch_up)

    async def resync(self):
        """The operator that lives finds what its watches missed, and works until it has nothing to write."""
        queue = WorkQueue(lambda: self.now)
        settings = dataclasses.replace(SETTINGS, watch_namespaces=(self.key.namespace,))
        await self._until_done(lambda: resync(self.operator.cache, self.api, queue.add, settings))

    async def _until_done(self, learn):
        deadline = time.monotonic() + 120
        while True:
            calm = await self._calm()
            await learn()
            if await self.work() and calm:
                return
            assert time.monotonic() < deadline, f"it does not settle: {self.wire.calls[-12:]}"

    async def _calm(self):
        """Whether the cluster's own controllers have done what the Deployment asks for, it seems.

        A rollout whose pods never become ready may stop anywhere: so it counts that nothing moves.
        """
        live = await self.api.read("Deployment", self.key.namespace, self.key.name)
        if live is None:
            return True
        before, self._looked = self._looked, (live["metadata"]["generation"], live.get("status", {}))
        if self._looked != before:
            await asyncio.sleep(_STILL)
            return False
        seen = live["status"].get("observedGeneration") == live["metadata"]["generation"]
        return seen and live["status"].get("replicas", 0) == live["spec"]["replicas"]

    async def snapshot(self):
        """What the service owns, without what the API server adds to each object's life."""
        found = {}
        async for body in self.everything():
            mine = (body["metadata"].get("labels") or {}).get(names.SERVICE_LABEL) == self.key.name
            if mine and body["kind"] not in {"Pod", "LLMService"}:
                found[f"{body['kind']} {body['metadata']['name']}"] = _lasting(body)
        return found

    async def clear(self):
        """Nothing is left of the service, but for pods that the garbage collector will find."""
        body = await self.body()
        if body:
            await self._remove(body)
        async for owned in self.everything():
            if (owned["metadata"].get("labels") or {}).get(names.SERVICE_LABEL) == self.key.name:
                await self._remove(owned)

    async def _remove(self, body):
        metadata = body["metadata"]
        await self.api.delete(body["kind"], metadata["namespace"], metadata["name"], metadata["uid"])

    async def body(self):
        return await self.api.read("LLMService", self.key.namespace, self.key.name)


def manifests(body):
    """What the operator wants for a raw LLMService; nothing if it refuses it."""
    try:
        service = parse_service(body)
    except RefusedError:
        return ()
    return desired_objects(service, SETTINGS, served_model_names(service), None)


def accepted(body):
    """(observed generation is current, status of Accepted)."""
    status = body.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    return status.get("observedGeneration") == body["metadata"]["generation"], conditions.get("Accepted")


def _lasting(body):
    metadata = {k: v for k, v in body["metadata"].items() if k not in _MADE_BY_SERVER}
    annotations = {k: v for k, v in metadata.get("annotations", {}).items() if k not in _TOLD_BY_OTHERS}
    metadata["annotations"] = annotations
    metadata["ownerReferences"] = [
        {k: v for k, v in owner.items() if k != "uid"} for owner in metadata.get("ownerReferences", [])
    ]
    spec = {k: v for k, v in body.get("spec", {}).items() if k not in {"clusterIP", "clusterIPs"}}
    return {"metadata": metadata, "spec": spec, "data": body.get("data")}
