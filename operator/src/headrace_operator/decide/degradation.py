"""The condition Degraded: what impairs a service although it may serve, gravest first. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from headrace_operator import names
from headrace_operator.api import Reason, Severity
from headrace_operator.api.bodies import Body
from headrace_operator.decide.condition_state import ConditionState
from headrace_operator.decide.observation import Observation, Pod
from headrace_operator.decide.pod_problems import kubectl_logs_hint
from headrace_operator.decide.policy_status import (
    describe_failed_policy,
    describe_stock_engine,
)
from headrace_operator.decide.readiness import REFUSED, describe_late_rollout, describe_pod_problem
from headrace_operator.decide.rollout import is_stuck
from headrace_operator.desired.history import rolled_back
from headrace_operator.errors import RefusedError

_HUNG = "requests are running and no step is made: delete the pod if it stays so, and look at its devices"
_WITHOUT_TURNS = (
    "it can't reach its group's turn server, so its steps may fall on those of its neighbours: "
    f"`kubectl get pods -l {names.POOL_GROUP_LABEL}` shows whether that runs; if it does, look for a "
    "NetworkPolicy between them"
)


def degraded_state(
    live: Body | None, observed: Observation, refused: RefusedError | None, failure: str, now: str
) -> ConditionState:
    """Decide whether something impairs the service; the gravest impairment gives reason and message."""
    if failure:
        message = f"the spec could not be carried out, which is tried again by itself: {failure}"
        return ConditionState(True, Reason.RECONCILE_ERROR, message)
    for reason, message in _impairments(live, observed, now):
        return ConditionState(True, reason, message)
    return ConditionState(
        False, Reason.AS_EXPECTED, f"what runs is well; {REFUSED}" if refused else "nothing is wrong"
    )


def seconds_until_crash_expires(observed: Observation, now: str) -> float | None:
    """Return the seconds until something ceases to be worth telling; None: nothing will."""
    waits = [pod.crash_reported_until - _seconds(now) for pod in observed.ready if _crashed_lately(pod, now)]
    return min(waits, default=None)


def _impairments(live: Body | None, observed: Observation, now: str) -> Iterator[tuple[str, str]]:
    """Yield what impairs the service, gravest first."""
    given_up = rolled_back(live)
    if given_up:
        yield Reason.ROLLED_BACK, given_up.message
    if live is not None and is_stuck(live):
        yield Reason.PROGRESS_DEADLINE_EXCEEDED, describe_late_rollout(live, observed)
    for pod in observed.pods:
        if pod.problem and pod.problem.reason.severity is Severity.IMPAIRING:
            yield pod.problem.reason, describe_pod_problem((pod.name, pod.problem))
    yield from _troubles_of_engines(observed)
    for pod in observed.ready:
        if pod.crash and _crashed_lately(pod, now):
            log = kubectl_logs_hint(pod.name, pod.crash.container, ended=True)
            yield Reason.CRASHED, f"{pod.name}: {pod.crash}; it serves again; {log}"


def _troubles_of_engines(observed: Observation) -> Iterator[tuple[str, str]]:
    """Yield what ready engines say of themselves."""
    for pod in observed.ready:
        report = observed.report(pod).status
        if report is None:
            continue
        if report.engine.state == "Hung":
            yield Reason.ENGINE_HUNG, f"{pod.name}: {_HUNG}"
        if report.engine.state == "Stock":
            yield Reason.ENGINE_VERSION_NOT_SUPPORTED, f"{pod.name}: {describe_stock_engine(report.engine)}"
        if report.without_turns:
            yield Reason.WITHOUT_TURNS, f"{pod.name}: {_WITHOUT_TURNS}"
        if report.policy.disabled:
            yield Reason.POLICY_FAILED, f"{pod.name}: {describe_failed_policy(report.policy)}"
        if report.prediction.predictor == "GivenUp":
            failing = "spec.prediction.predictor keeps failing, and the mean of recent outputs stands in"
            yield (
                Reason.PREDICTOR_FAILED,
                f"{pod.name}: {failing}; {kubectl_logs_hint(pod.name, names.ENGINE)}",
            )


def _crashed_lately(pod: Pod, now: str) -> bool:
    return _seconds(now) < pod.crash_reported_until


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
