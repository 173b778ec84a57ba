"""Follows the engines by asking each pod's sidecar for `/status`; one task per pod, so none delays another.

    reconcile ── follow(key, pods, documents) ──► tasks ── report changed ──► on_change(key) ──► queue

A pod is asked often while it has not confirmed the wanted documents, and rarely once it has. Reconciles read
the reports; they never wait for a sidecar.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from headrace_engine.contracts import ContractError, EngineStatus, loads
from headrace_engine.contracts.fetch import fetch
from headrace_operator import names
from headrace_operator.api import Key
from headrace_operator.decide.documents import Documents
from headrace_operator.decide.observation import Pod, SidecarReport

_FAST = 0.2  # seconds between questions for the first FAST_FOR seconds after a change
_FAST_FOR = 10.0
_SLOW = 1.0  # while still unconfirmed after that: less than a readiness probe takes to succeed
_SETTLED = 30.0
_FAILURES_BEFORE_UNREACHABLE = 3
_ANSWER_SECONDS = 1.0  # for one answer
_MOST_CHARACTERS = 300  # of a text
_MOST_ITEMS = 64


FetchStatus = Callable[[str], Awaitable[EngineStatus]]  # raises OSError or ContractError


async def fetch_status(ip: str) -> EngineStatus:
    """Fetch the status of the sidecar in the pod at this address; raises OSError or ContractError.

    A connection for each question: what a pod sends unasked between two would pile up here.
    """
    body = await fetch(ip, names.SIDECAR_PORT, "/status", seconds=_ANSWER_SECONDS)
    status: EngineStatus = _shortened(loads(EngineStatus, body))
    return status


def _shortened(document: Any) -> Any:
    """Cut texts to a length for people, printable, and lists as short: the status is kept, and shown."""
    if isinstance(document, str):
        text = document if document.isprintable() else "".join(c for c in document if c.isprintable())
        return text[:_MOST_CHARACTERS]
    if isinstance(document, tuple):
        return tuple(map(_shortened, document[:_MOST_ITEMS]))
    if not hasattr(document, "__dataclass_fields__"):
        return document
    return replace(
        document, **{each.name: _shortened(getattr(document, each.name)) for each in fields(document)}
    )


@dataclass(slots=True)
class _Follower:
    """One pod's task and what it knows."""

    ip: str
    task: asyncio.Task[None]
    wake: asyncio.Event
    wanted: Documents
    since: float  # when `wanted` changed
    failures: int = 0
    report: SidecarReport = field(default_factory=SidecarReport)


class SidecarStatuses:
    """The reports of all engines. For one event loop."""

    def __init__(self, fetch_status: FetchStatus, on_change: Callable[[Key], None]) -> None:
        self._fetch_status = fetch_status
        self._on_change = on_change
        self._followers: dict[Key, dict[str, _Follower]] = {}

    def follow(self, key: Key, pods: Iterable[Pod], wanted: Documents) -> None:
        """Follow exactly these pods of the service, until each has confirmed `wanted` and beyond."""
        group = self._followers.setdefault(key, {})
        current = {pod.uid: pod for pod in pods if pod.ip}
        for uid in [
            uid for uid, follower in group.items() if uid not in current or current[uid].ip != follower.ip
        ]:
            group.pop(uid).task.cancel()
        for uid, pod in current.items():
            if uid not in group:
                group[uid] = self._start(key, uid, pod.ip, wanted)
            elif group[uid].wanted != wanted:
                group[uid].wanted, group[uid].since = wanted, _now()
                group[uid].wake.set()
        if not group:
            del self._followers[key]

    def reports(self, key: Key) -> Mapping[str, SidecarReport]:
        """Return the last reports of a service's pods, by their uids."""
        return {uid: follower.report for uid, follower in self._followers.get(key, {}).items()}

    async def stop(self) -> None:
        """Cancel the tasks of all pods and wait for their ends."""
        tasks = [follower.task for group in self._followers.values() for follower in group.values()]
        self._followers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, key: Key, uid: str, ip: str, wanted: Documents) -> _Follower:
        task = asyncio.create_task(self._run(key, uid), name=f"follow {key} {uid}")
        return _Follower(ip, task, asyncio.Event(), wanted, _now())

    async def _run(self, key: Key, uid: str) -> None:
        follower = self._followers[key][uid]
        while True:
            before, follower.report = follower.report, await self._ask(follower)
            if _without_counters(follower.report) != _without_counters(before):
                self._on_change(key)
            follower.wake.clear()
            try:
                async with asyncio.timeout(_seconds_until_next_question(follower)):
                    await follower.wake.wait()
            except TimeoutError:
                continue

    async def _ask(self, follower: _Follower) -> SidecarReport:
        """Ask for a new report; a few failures in a row keep the last one, since sidecars restart."""
        try:
            status = await self._fetch_status(follower.ip)
        except (OSError, ContractError) as error:
            follower.failures += 1
            if follower.failures < _FAILURES_BEFORE_UNREACHABLE:
                return follower.report
            return SidecarReport(error=f"its sidecar cannot be asked: {_describe_error(error)}")
        follower.failures = 0
        return SidecarReport(status)


def _describe_error(error: Exception) -> str:
    """Return what a condition may say of an error: nothing that the other end wrote."""
    if isinstance(error, ContractError):
        return "its answer is not a status of this release's form"
    if isinstance(error, TimeoutError):
        return "its answer was not complete in time"
    return str(error)


def _without_counters(report: SidecarReport) -> SidecarReport:
    """Leave out what changes with every request: it is no reason to reconcile."""
    if report.status is None:
        return report
    engine, policy, prediction = report.status.engine, report.status.policy, report.status.prediction
    state = "Running" if engine.state == "Idle" else engine.state
    reason = engine.reason if state == "Stock" else ""  # others count seconds and requests
    status = replace(
        report.status,
        engine=replace(engine, state=state, reason=reason),
        policy=replace(policy, fallback_steps=0),
        prediction=replace(prediction, learned=0, failures=0),
    )
    return replace(report, status=status)


def _seconds_until_next_question(follower: _Follower) -> float:
    """Return the seconds until the next question."""
    status = follower.report.status
    if status is not None and (status.engine.state == "Stock" or follower.wanted.are_answered_by(status)):
        return _SETTLED
    return _FAST if _now() - follower.since < _FAST_FOR else _SLOW


def _now() -> float:
    return asyncio.get_running_loop().time()
