"""One LLMService's life in the mutation benchmark, and what stands around a hundred of them.

The benchmark plays the Deployment controller: a rollout is done at once (`Ready`), never (`Slow`), or has
failed (`Failed`), after which what was ready before comes back. There are no pods: a changed template stands
for theirs.
"""

import asyncio
import contextlib
import copy
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.bench.mutations.specs import VOLUME_CLAIMS, Maker, Spec, flat, is_live, schema
from e2e.bench.operator.api import APPS, CORE, SERVICES, Api, ApiError, Body

_SCHEMA = schema()
_PLURAL = "llmservices"
_TIMEOUT = 300.0  # seconds until something must have happened
_TRIES = 300  # of values that break no rule
_FATES = ("Ready", "Ready", "Ready", "Ready", "Slow", "Failed")
_REFUSED = re.compile(r": (400|422) |: 500 .*failed to create typed patch object")
_GONE = ": 404 "
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
_EACH_OWN = {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}
_APPLIED = "headrace.dev/applied-hash"  # covers the uid of the owner
_READY, _INPUTS, _RENDERED = (
    f"headrace.dev/{name}" for name in ("last-ready", "inputs-hash", "template-hash")
)
_ROLLED_BACK = "headrace.dev/rolled-back"
_FAILED = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


@dataclass(slots=True)
class Life:
    """A service, the leaf that is to change in any case, and what became of it."""

    name: str
    focus: str
    dice: random.Random
    spec: Spec = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    changes: int = 0
    covered: set[str] = field(default_factory=set)
    needless: list[str] = field(default_factory=list)


class Lives:
    """The API server as all lives see it, and what becomes of their rollouts."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.fates: dict[str, str] = {}
        self._services: dict[str, Body] = {}
        self._deployments: dict[str, Body] = {}
        self._changed = asyncio.Condition()

    async def make_pvcs(self) -> None:
        """Make PVCs of all names: a service that runs is not moved to one that is missing."""
        for name in VOLUME_CLAIMS:
            spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
            await self.api.create(CORE, "persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec})

    async def play(self) -> None:
        """Follow services and Deployments, and say how these do, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(SERVICES, _PLURAL, self._services, tasks))
            tasks.create_task(self._follow(APPS, "deployments", self._deployments, tasks))

    async def until(self, met: Callable[[Body | None, Body | None], bool], name: str, what: str) -> None:
        """Wait for a service and its Deployment to be so; TimeoutError says what did not happen."""
        try:
            async with asyncio.timeout(_TIMEOUT), self._changed:
                await self._changed.wait_for(
                    lambda: met(self._services.get(name), self._deployments.get(name))
                )
        except TimeoutError:
            seen = json.dumps([self._services.get(name), self._deployments.get(name)])
            raise TimeoutError(f"{name}: {what}: {seen}") from None

    def template(self, name: str) -> Body | None:
        """Return the template of the service's pods."""
        live = self._deployments.get(name)
        return copy.deepcopy(live["spec"]["template"]) if live else None

    def was_ready(self, name: str) -> bool:
        """Tell whether the pods' template is the one that was ready last."""
        return name in self._deployments and _was_ready(self._deployments[name])

    def gave_up(self, name: str) -> bool:
        """Tell whether the spec's pods failed, so that its values are not tried again."""
        return name in self._deployments and _ROLLED_BACK in _annotations(self._deployments[name])

    def accepted(self, name: str) -> bool:
        """Tell whether the operator takes the spec."""
        return _condition(self._services[name], "Accepted") == "True"

    async def owned(self, batch: Sequence[Life]) -> dict[str, Body]:
        """Return what each service is and owns, without what every object has of its own."""
        names = {self._services[life.name]["metadata"]["uid"]: life.name for life in batch}
        found: dict[str, Body] = {life.name: {_PLURAL: self._services[life.name]["spec"]} for life in batch}
        for root, plural in await self.api.kinds():
            for body in await self.api.list(root, plural):
                for owner in body["metadata"].get("ownerReferences", ()):
                    if owner["uid"] in names:
                        found[names[owner["uid"]]][f"{plural} {body['metadata']['name']}"] = _lasting(body)
        return found

    async def clear(self, batch: Sequence[Life]) -> None:
        """Delete the services and, since nobody collects garbage here, all that they own."""
        owned = await self.owned(batch)
        for life in batch:
            await self.api.delete(SERVICES, _PLURAL, life.name)
        for life in batch:
            await self.until(lambda service, _: service is None, life.name, "is deleted")
        roots = {plural: root for root, plural in await self.api.kinds()}
        for life in batch:
            for plural, name in (place.split() for place in owned[life.name] if " " in place):
                await self.api.delete(roots[plural], plural, name)
            await self.until(lambda _, deployment: deployment is None, life.name, "is cleared")

    async def make_anew(self, life: Life) -> None:
        """Make the service with nothing but its last spec."""
        self.fates[life.name] = "Ready"
        await self.api.create(SERVICES, _PLURAL, _service(life.name, life.spec))
        await self.settle(life.name)

    async def settle(self, name: str) -> None:
        """Wait until the operator has done what the spec asks, and knows what became of it."""
        fate = self.fates[name]
        generation = (await self.api.get(SERVICES, _PLURAL, name))["metadata"]["generation"]
        await self.until(lambda service, _: _seen(service, generation), name, "is looked at")
        await self._catch_up(name)
        if name in self._deployments:  # which may be as it was, but for its fate
            await self._tell(self._deployments[name])
        if self.accepted(name):
            await self.until(lambda _, live: live is not None and _told(live, fate), name, f"is told: {fate}")

    async def _catch_up(self, name: str) -> None:
        """Wait until the Deployment is seen as the operator has left it: the watches are not in step."""
        try:
            generation = (await self.api.get(APPS, "deployments", name))["metadata"]["generation"]
        except ApiError as error:
            if _GONE not in str(error):
                raise
            return
        await self.until(
            lambda _, live: live is not None and live["metadata"]["generation"] >= generation,
            name,
            "is seen as it is",
        )

    async def _follow(self, root: str, plural: str, seen: dict[str, Body], tasks: asyncio.TaskGroup) -> None:
        """Follow a kind for ever: the API server ends watches of a definition that it has just taken in."""
        while True:
            seen.clear()
            with contextlib.suppress(ApiError):
                async for kind, body in self.api.watch(root, plural):
                    await self._note(kind, body, seen, tasks)

    async def _note(self, kind: str, body: Body, seen: dict[str, Body], tasks: asyncio.TaskGroup) -> None:
        name = body["metadata"]["name"]
        async with self._changed:
            if kind == "DELETED":
                seen.pop(name, None)
            elif kind in {"ADDED", "MODIFIED"}:
                seen[name] = body
                if seen is self._deployments:
                    tasks.create_task(self._tell(body))
            self._changed.notify_all()

    async def _tell(self, live: Body) -> None:
        """Tell how the Deployment does, once for each generation; what follows a failure succeeds."""
        name, generation = live["metadata"]["name"], live["metadata"]["generation"]
        if live.get("status", {}).get("observedGeneration") == generation and self._same_fate(live):
            return
        fate, count = self.fates[name], live["spec"]["replicas"]
        done = fate == "Ready" or _was_ready(live)
        status: Body = {"observedGeneration": generation, **dict.fromkeys(_COUNTS, count if done else 0)}
        status["replicas"] = count
        status["conditions"] = [_FAILED] if fate == "Failed" and not done else []
        try:
            await self.api.merge(APPS, "deployments", name, {"status": status}, "status")
        except ApiError as error:
            if _GONE not in str(error):
                raise

    def _same_fate(self, live: Body) -> bool:
        """Tell whether its status is what its fate says."""
        return _told_status(live, self.fates[live["metadata"]["name"]])


async def live(life: Life, lives: Lives) -> None:
    """Live it through; the last spec has been carried out then."""
    maker, applies = Maker(life.dice), life.dice.random() < 0.5
    life.spec = {
        "model": {"source": "hf://a/b", "servedName": f"m-{life.name}"},
        "engine": {"image": "example/vllm:1"},
        "accelerator": {"type": "CPU"},
    }
    lives.fates[life.name] = "Ready"
    if applies:
        await lives.api.apply(SERVICES, _PLURAL, life.name, _service(life.name, life.spec))
    else:
        await lives.api.create(SERVICES, _PLURAL, _service(life.name, life.spec))
    await lives.settle(life.name)
    others = life.dice.sample(sorted(maker.leaves), life.dice.randint(2, 4))
    for leaf in (life.focus, *others, life.focus):
        await _step(life, lives, maker, leaf, applies=applies)
    await _end(life, lives, applies=applies)


async def _step(life: Life, lives: Lives, maker: Maker, leaf: str, *, applies: bool) -> None:
    """Change a leaf, and see whether pods are replaced for nothing."""
    before, template = await lives.api.get(SERVICES, _PLURAL, life.name), lives.template(life.name)
    was_ready = lives.was_ready(life.name)
    lives.fates[life.name] = fate = life.dice.choice(_FATES)
    for _ in range(_TRIES):
        spec = maker.changed(life.spec, leaf)
        named = spec["model"].get("servedName") if isinstance(spec.get("model"), dict) else None
        if named and named != life.spec["model"].get("servedName"):
            spec["model"]["servedName"] = f"{named}-{life.name}"  # two may not have one name
        if flat(spec, _SCHEMA).get(leaf) == flat(life.spec, _SCHEMA).get(leaf):
            continue
        if await _write(lives.api, life.name, spec, applies=applies):
            break
    else:
        return  # for this leaf another must be as it is not; coverage tells if it never is
    life.spec = spec
    after = await lives.api.get(SERVICES, _PLURAL, life.name)
    await lives.settle(life.name)
    changed = _changed(before["spec"], after["spec"])
    life.changes += 1
    life.story.append(f"{leaf} ({fate}): {json.dumps(spec)}")
    accepted = lives.accepted(life.name)
    if accepted:
        life.covered |= changed
    harmless = not accepted or all(is_live(_SCHEMA, each) for each in changed)
    failed = fate == "Failed" and not was_ready  # what was under way before is given up now
    if harmless and not failed and lives.template(life.name) != template:
        life.needless.append(f"{life.name}: {sorted(changed)}: {life.story}")


async def _end(life: Life, lives: Lives, *, applies: bool) -> None:
    """End with a spec that is taken, with a replica, whose rollout is done."""
    lives.fates[life.name] = "Ready"
    spec = copy.deepcopy(life.spec)
    if not lives.accepted(life.name):
        spec.get("podTemplate", {}).pop("affinity", None)  # the one part that no schema describes
    if lives.gave_up(life.name):  # the way that the documentation names to have the same values tried again
        metadata = spec.setdefault("podTemplate", {}).setdefault("metadata", {})
        metadata["annotations"] = {**metadata.get("annotations", {}), "example.com/try": "again"}
    spec["replicas"] = life.dice.randint(1, 5)
    if not await _write(lives.api, life.name, spec, applies=applies):
        raise RuntimeError(f"{life.name}: refused: {spec}")
    life.spec = spec
    await lives.settle(life.name)
    if not lives.accepted(life.name):
        raise RuntimeError(
            f"{life.name}: not accepted: {spec}: {await lives.api.get(SERVICES, _PLURAL, life.name)}"
        )


async def _write(api: Api, name: str, spec: Spec, *, applies: bool) -> bool:
    """Write the spec; returns whether the API server takes it."""
    try:
        if applies:
            await api.apply(SERVICES, _PLURAL, name, _service(name, spec))
        else:
            await api.replace_spec(SERVICES, _PLURAL, name, spec)
    except ApiError as error:
        if _REFUSED.search(str(error)):
            return False
        raise
    return True


def _changed(before: Spec, after: Spec) -> set[str]:
    """Leaves that are not as they were."""
    old, new = flat(before, _SCHEMA), flat(after, _SCHEMA)
    return {leaf for leaf in {*old, *new} if old.get(leaf) != new.get(leaf)}


def _service(name: str, spec: Spec) -> Body:
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name},
        "spec": spec,
    }


def _seen(service: Body | None, generation: int) -> bool:
    told = (service or {}).get("status", {}).get("observedGeneration", 0)
    return bool(told >= generation)


def _condition(service: Body, kind: str) -> str:
    told = service.get("status", {}).get("conditions", ())
    return next((c["status"] for c in told if c["type"] == kind), "")


def _annotations(live: Body) -> Mapping[str, Any]:
    return live["metadata"].get("annotations") or {}


def _was_ready(live: Body) -> bool:
    """Tell whether the Deployment has the template that was ready last."""
    ready = json.loads(_annotations(live).get(_READY, "{}"))
    current = [_annotations(live).get(name) for name in (_INPUTS, _RENDERED)]
    return bool(ready) and [ready["inputs"], ready["rendering"]] == current


def _told_status(live: Body, fate: str) -> bool:
    """Tell whether the Deployment's status is about this generation, and as its fate says."""
    status = live.get("status", {})
    if status.get("observedGeneration") != live["metadata"]["generation"]:
        return False
    done = fate == "Ready" or _was_ready(live)
    failed = any(c["reason"] == _FAILED["reason"] for c in status.get("conditions", ()))
    ready = status.get("readyReplicas", 0) == live["spec"]["replicas"]
    return ready if done else failed == (fate == "Failed") and status.get("readyReplicas", 0) == 0


def _told(live: Body, fate: str) -> bool:
    """Tell whether the operator has drawn its conclusions from it."""
    if not _told_status(live, fate):
        return False
    if fate == "Ready" and live["spec"]["replicas"]:
        return _was_ready(live)
    if fate == "Failed" and _READY in _annotations(live):
        return _was_ready(live) or _ROLLED_BACK in _annotations(live)
    return True


def _lasting(body: Body) -> Body:
    metadata = {name: value for name, value in body["metadata"].items() if name not in _EACH_OWN}
    metadata["annotations"] = {k: v for k, v in metadata.get("annotations", {}).items() if k != _APPLIED}
    metadata["ownerReferences"] = [
        {k: v for k, v in owner.items() if k != "uid"} for owner in metadata["ownerReferences"]
    ]
    content = {k: v for k, v in body.items() if k not in {"metadata", "status"}}
    spec = {k: v for k, v in body.get("spec", {}).items() if k not in {"clusterIP", "clusterIPs"}}
    return {**content, "metadata": metadata, "spec": spec}
