"""What the watches have brought so far: the operator reads from here, not from the API server.

Writers put their answers in, too, so that a reconcile sees what the one before it wrote although the watch is
behind. An older version never replaces a newer one (resource versions of etcd are comparable numbers), nor
does one bring back what was deleted after it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace_operator.api import KIND, POOL_KIND, Key, key_of
from headrace_operator.api.bodies import JsonObject
from headrace_operator.decide.model_names import model_names_in
from headrace_operator.decide.turn_groups import services_named_in
from headrace_operator.names import owner_key_of

Name = tuple[str, str]  # kind, name

_SHARED_LENGTH = 100  # characters of names, types and paths; longer texts differ
_OWNER_KINDS = {KIND, POOL_KIND}
_DELETIONS = 4096  # remembered; a late event is late by seconds


class Cache:
    """Services and pools, and what each owns with its pods. For one event loop; nothing here awaits."""

    def __init__(self) -> None:
        self._owners: dict[Key, JsonObject] = {}
        self._pools: dict[Key, None] = {}  # those of them that are pools: few, and often asked for
        self._named: defaultdict[str, dict[Key, None]] = defaultdict(dict)  # by name in requests
        self._routed: defaultdict[str, dict[Key, None]] = defaultdict(dict)  # by name in a route
        self._belongings: defaultdict[Key, dict[Name, JsonObject]] = defaultdict(dict)
        self._holders: dict[str, Key] = {}  # uid of a belonging → under which service it is remembered
        self._deleted: dict[str, int] = {}  # uid → version, the latest last

    def put(self, body: JsonObject) -> list[Key]:
        """Remember an object; the keys that it concerns: whose it is, whose it was, pools it is new to."""
        key, keys = owner_key_of(body), self._leave(body)
        if key is None:
            return keys
        if version(body) > self._deleted.get(body["metadata"]["uid"], -1):
            if _generation(self._owners.get(key)) != _generation(body):
                keys += self._pools_naming(body)
            self._remember(key, body)
        return [key, *keys]

    def _remember(self, key: Key, body: JsonObject) -> None:
        if body["kind"] in _OWNER_KINDS:
            if _is_newer(body, self._owners.get(key)):
                self._forget_name(key)
                self._owners[key] = _compact(body)
                if key.kind == POOL_KIND:
                    self._pools[key] = None
                _enter(self._named, model_names_in(body), key)
        elif _is_newer(body, self._belongings[key].get(_name(body))):
            self._forget(key, _name(body))
            self._belongings[key][_name(body)] = _compact(body)
            _enter(self._routed, model_names_in(body), key)
            self._holders[body["metadata"]["uid"]] = key

    def _leave(self, body: JsonObject) -> list[Key]:
        """Take an object out where its label was before somebody changed it; returns whose it was."""
        uid = body["metadata"]["uid"]
        former = self._holders.get(uid)
        if former is None or former == owner_key_of(body):
            return []
        if not _is_newer(body, self._belongings[former][_name(body)]):
            return []
        self._forget(former, _name(body))
        self._remember_end(uid, version(body) - 1)
        return [former]

    def _forget(self, key: Key, name: Name) -> None:
        known = self._belongings[key].pop(name, None)
        if known is not None:
            del self._holders[known["metadata"]["uid"]]
            _remove(self._routed, model_names_in(known), key)
        if not self._belongings[key]:
            del self._belongings[key]

    def put_status(self, body: JsonObject) -> None:
        """Remember the answer to a write of the status, unless it shows something else that is new.

        That is somebody's change of the spec, say, which this pass has not seen: its event must not be known.
        """
        known = self._owners.get(key_of(body))
        if known is not None and _but_status(known) == _but_status(body):
            self.put(body)

    def has_seen(self, service: JsonObject) -> bool:
        """Tell whether a service is remembered as it is here, or as it was later."""
        known = self._owners.get(key_of(service))
        if known is None or known["metadata"]["uid"] != service["metadata"]["uid"]:
            return False
        return 0 < version(service) <= version(known)

    def drop(self, body: JsonObject) -> list[Key]:
        """Forget an object that was deleted, unless a newer one has taken its name; whom that concerns."""
        key = owner_key_of(body)
        if key is None:
            return []
        uid = body["metadata"]["uid"]
        if body["kind"] not in _OWNER_KINDS:
            if self._holders.get(uid) == key:
                self._forget(key, _name(body))
        elif key in self._owners and self._owners[key]["metadata"]["uid"] == uid:
            self._forget_name(key)
            del self._owners[key]
            self._pools.pop(key, None)
        self._remember_end(uid, version(body))
        return [key, *self._pools_naming(body)]

    def replace_by_older(self, known: JsonObject, live: JsonObject) -> None:
        """Take the API server's version, which is older than `known`: its etcd was restored from a backup."""
        key = owner_key_of(known)
        if key is None:
            return
        is_owner = known["kind"] in _OWNER_KINDS
        place: Mapping[Any, JsonObject] = self._owners if is_owner else self._belongings[key]
        if place.get(key if is_owner else _name(known)) is known:
            self.drop(known)
            del self._deleted[known["metadata"]["uid"]]
            self.put(live)

    def _forget_name(self, key: Key) -> None:
        known = self._owners.get(key)
        if known is not None:
            _remove(self._named, model_names_in(known), key)

    def _remember_end(self, uid: str, number: int) -> None:
        """Remember the end of an object: what comes late must not bring it back, what is newer may."""
        self._deleted[uid] = max(number, self._deleted.pop(uid, -1))
        if len(self._deleted) > _DELETIONS:
            del self._deleted[next(iter(self._deleted))]

    def discard_owned(self, key: Key, kind: str, name: str) -> None:
        """Forget an owned object that we deleted ourselves; the watch will say so later."""
        self._forget(key, (kind, name))

    def service(self, key: Key) -> JsonObject | None:
        """Return the raw LLMService; None if there is none."""
        return self._owners.get(key)

    def pool(self, key: Key) -> JsonObject | None:
        """Return the raw GPUPool; None if there is none."""
        return self._owners.get(key)

    def services(self, namespace: str = "") -> Iterator[JsonObject]:
        """Yield all LLMServices, or those of a namespace."""
        keys = (key for key in self._owners if key.kind == KIND and namespace in {"", key.namespace})
        return (self._owners[key] for key in keys)

    def pools(self, namespace: str = "") -> Iterator[JsonObject]:
        """Yield all GPUPools, or those of a namespace."""
        return (self._owners[key] for key in self._pools if namespace in {"", key.namespace})

    def _pools_naming(self, body: JsonObject) -> list[Key]:
        """Return the pools that name a raw LLMService; none of anything else."""
        if body["kind"] != KIND:
            return []
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        return [key_of(pool) for pool in self.pools(namespace) if name in services_named_in(pool)]

    def services_asking_for(self, name: str) -> Iterator[JsonObject]:
        """Yield LLMServices that may have a model name: they ask for it, had it, or are called so."""
        keys = dict(self._named.get(name, {}))
        namespace, _, service = name.partition("/")
        keys[Key(namespace, service)] = None
        return (self._owners[key] for key in keys if key in self._owners)

    def services_routing(self, name: str) -> list[Key]:
        """Return the services in whose routes a model name is."""
        return list(self._routed.get(name, ()))

    def owned(self, key: Key) -> list[JsonObject]:
        """Return the owned objects of a service, pods not included."""
        return [body for (kind, _), body in self._belongings.get(key, {}).items() if kind != "Pod"]

    def owned_object(self, key: Key, kind: str, name: str) -> JsonObject | None:
        """Return one owned object of a service."""
        return self._belongings.get(key, {}).get((kind, name))

    def pods(self, key: Key) -> list[JsonObject]:
        """Return the pods of a service."""
        return [body for (kind, _), body in self._belongings.get(key, {}).items() if kind == "Pod"]

    def objects_of_kind(self, kind: str) -> list[JsonObject]:
        """Return all that is remembered of a kind, for comparison with what exists."""
        if kind in _OWNER_KINDS:
            return list(self.services() if kind == KIND else self.pools())
        return [
            body for group in self._belongings.values() for (each, _), body in group.items() if each == kind
        ]


def _enter(index: dict[str, dict[Key, None]], names_: Iterable[str], key: Key) -> None:
    for name in names_:
        index[name][key] = None


def _remove(index: dict[str, dict[Key, None]], names_: Iterable[str], key: Key) -> None:
    for name in names_:
        index[name].pop(key, None)
        if not index[name]:
            del index[name]


def _name(body: JsonObject) -> Name:
    return body["kind"], body["metadata"]["name"]


def _is_newer(body: JsonObject, known: JsonObject | None) -> bool:
    """Tell whether it is newer; also without a version, which says nothing."""
    return known is None or version(body) > version(known) or not version(body)


def _but_status(body: JsonObject) -> JsonObject:
    told = {"resourceVersion", "managedFields"}  # of every write
    metadata = {name: value for name, value in body["metadata"].items() if name not in told}
    return {**body, "metadata": metadata, "status": None}


def version(body: JsonObject) -> int:
    """Return the resource version of an object."""
    return int(body["metadata"].get("resourceVersion") or 0)


def _generation(body: JsonObject | None) -> int | None:
    return body["metadata"].get("generation") if body else None


def _compact(body: JsonObject) -> JsonObject:
    """Return what is read of an object, with texts that occur in many objects held once."""
    kept = {**body, "metadata": {k: v for k, v in body["metadata"].items() if k != "managedFields"}}
    if body["kind"] == "Pod":
        spec = body.get("spec", {})
        containers = [
            {key: c[key] for key in ("name", "env") if key in c} for c in spec.get("containers", ())
        ]
        kept["spec"] = {"volumes": spec.get("volumes", []), "containers": containers}
        more = ("hostNetwork", "readinessGates", "nodeName", "resourceClaims")
        kept["spec"] |= {key: spec[key] for key in more if spec.get(key)}
    return dict(_interned(kept))


def _interned(value: Any) -> Any:
    if isinstance(value, str):
        return sys.intern(str(value)) if len(value) <= _SHARED_LENGTH else value
    if isinstance(value, Mapping):
        return {_interned(key): _interned(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_interned(each) for each in value]
    return value
