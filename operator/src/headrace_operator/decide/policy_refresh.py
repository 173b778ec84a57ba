"""Decides when a pod's kubelet is made to read changed documents at once: by a change of its annotation.

Without that the kubelet takes up to a minute. The ConfigMap and the pod reach the kubelet on separate
watches, so a refresh can be too early: it is repeated until the engine has confirmed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace_operator.api import Key
from headrace_operator.decide.documents import Documents
from headrace_operator.decide.observation import Observation, Pod

# Seconds until a refresh that brought no confirmation is repeated; doubles with each repetition. After an
# outage of the API server the kubelet's watches may be late by a minute: so long, repetitions stay close.
_FIRST_REPEAT = 0.4
_CLOSE_REPEAT = 5.0
_LAST_REPEAT = 30.0
_CLOSE_REPEATS = 20  # a minute and a half


@dataclass(frozen=True, slots=True)
class RefreshPolicy:
    """Change the pod's policy-refresh annotation to `value`."""

    pod: Pod
    value: str


@dataclass(slots=True)
class PolicyRefreshes:
    """Remembers when each pod was refreshed last, by the caller's clock, in seconds."""

    _refreshed: dict[Key, dict[str, float]] = field(default_factory=dict)  # by pod uid

    def plan_refreshes(
        self, key: Key, observed: Observation, wanted: Documents, now: float
    ) -> list[RefreshPolicy]:
        """Return the refreshes that are due now."""
        return [
            RefreshPolicy(pod, _next_value(pod, wanted))
            for pod in find_unconfirmed_pods(observed, wanted)
            if self._due(key, pod, wanted) <= now
        ]

    def record_refreshes(self, key: Key, pods: Iterable[Pod], observed: Observation, now: float) -> None:
        """Remember that these pods were refreshed now, and drop pods that are gone."""
        refreshed = self._refreshed.get(key, {}) | {pod.uid: now for pod in pods}
        present = {pod.uid for pod in observed.pods}
        self._refreshed[key] = {uid: when for uid, when in refreshed.items() if uid in present}

    def seconds_until_next(
        self, key: Key, observed: Observation, wanted: Documents, now: float
    ) -> float | None:
        """Return the seconds until the next refresh is due; None when every engine has answered."""
        pods = find_unconfirmed_pods(observed, wanted)
        due = min((self._due(key, pod, wanted) for pod in pods), default=None)
        return None if due is None else max(0.0, due - now)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a service that is gone."""
        self._refreshed.pop(key, None)

    def _due(self, key: Key, pod: Pod, wanted: Documents) -> float:
        repeats, refreshed = _count_repeats(pod, wanted), self._refreshed.get(key, {}).get(pod.uid)
        if repeats is None or refreshed is None:
            return float("-inf")
        if repeats >= _CLOSE_REPEATS:
            return refreshed + _LAST_REPEAT
        return refreshed + min(_FIRST_REPEAT * 2.0**repeats, _CLOSE_REPEAT)


def find_unconfirmed_pods(observed: Observation, wanted: Documents) -> Iterator[Pod]:
    """Yield ready pods that have reported, and still have other documents than these."""
    for pod in observed.ready:
        status = observed.report(pod).status
        if status is None or status.engine.state == "Stock":
            continue
        if not wanted.are_answered_by(status):
            yield pod


def _count_repeats(pod: Pod, wanted: Documents) -> int | None:
    """Return how often the refresh for these documents was repeated; None if there was none yet."""
    given, _, nonce = pod.policy_refresh.partition("-")
    if given != str(wanted):
        return None
    return int(nonce) if nonce.isdigit() else 0


def _next_value(pod: Pod, wanted: Documents) -> str:
    repeats = _count_repeats(pod, wanted)
    return str(wanted) if repeats is None else f"{wanted}-{repeats + 1}"
