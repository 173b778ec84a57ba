"""Which pods are the service's own: made by a ReplicaSet of the Deployment that the operator made for it.

    pod ── controller ──► ReplicaSet ── controller ──► Deployment ── controller ──► LLMService

A label says nothing: whoever may create pods may write any. The uids of this chain are what the API server
gave, so a pod that is none of ours is neither counted, asked nor annotated. Who may write ReplicaSets or pods
in a namespace can still forge a link of it there, and speak for a service of that namespace: he could as well
edit its Deployment. No other namespace's service is in reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace_operator.api import Key
from headrace_operator.api.bodies import Body
from headrace_operator.desired import owner
from headrace_operator.kube.client import Cluster
from headrace_operator.kube.kinds import REPLICA_SET

_AT_ONCE = 8  # ReplicaSets that are looked up in one pass; forged names must not keep others waiting
_NEXT_PASS = 1.0  # seconds until more are
_RECHECK_SECONDS = 60.0  # seconds; the garbage collector or a Deployment may adopt one that was nobody's


@dataclass(slots=True)
class _Known:
    """What was found out about the ReplicaSets of one service's pods, by their uids."""

    own: set[str] = field(default_factory=set)
    strange: dict[str, float] = field(default_factory=dict)  # when it was looked up


class Ownership:
    """The ReplicaSets of each service; each is looked up once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[Key, _Known] = {}

    async def learn(
        self, key: Key, deployment: Body | None, pods: Iterable[Body], now: float
    ) -> float | None:
        """Look up whose ReplicaSets made these pods; seconds until more are to be. Raises ApiError.

        `deployment`: the service's own; None: there is none, and nothing new can be its own.
        """
        makers = {maker["uid"]: maker["name"] for pod in pods if (maker := _maker(pod))}
        known = self._known.setdefault(key, _Known())
        known.own &= makers.keys()
        known.strange = {uid: when for uid, when in known.strange.items() if uid in makers}
        if deployment is None:
            return None
        unknown = [uid for uid in makers if self._is_unknown(known, uid, now)]
        for uid in unknown[:_AT_ONCE]:
            found = await self._cluster.read(REPLICA_SET.kind, key.namespace, makers[uid])
            its = found is not None and found["metadata"]["uid"] == uid
            if its and owner(found or {}) == deployment["metadata"]["uid"]:
                known.own.add(uid)
                known.strange.pop(uid, None)
            else:
                known.strange[uid] = now
        return _NEXT_PASS if len(unknown) > _AT_ONCE else _RECHECK_SECONDS if known.strange else None

    def own_pods(self, key: Key, pods: Iterable[Body]) -> Iterator[Body]:
        """Yield those of the pods that the service's Deployment made, as far as is known."""
        known = self._known.get(key, _Known()).own
        return (pod for pod in pods if (maker := _maker(pod)) and maker["uid"] in known)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a service that is gone."""
        self._known.pop(key, None)

    @staticmethod
    def _is_unknown(known: _Known, uid: str, now: float) -> bool:
        looked = known.strange.get(uid)
        return uid not in known.own and (looked is None or now - looked >= _RECHECK_SECONDS)


def _maker(pod: Body) -> Body | None:
    """Return the ReplicaSet that a pod says controls it."""
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and reference["kind"] == REPLICA_SET.kind:
            return dict(reference)
    return None
