"""Why a pod does not serve: each situation gives the reason that tells it from the others, and the fix."""

import dataclasses

import pytest
from op_conditions import OURS, conditions, container, readiness, since, unscheduled, waiting
from op_world import RUNNING, body, observed, pod, report

from headrace_operator.api import Condition, PodReason, Reason
from headrace_operator.decide.degradation import seconds_until_crash_expires
from headrace_operator.decide.observation import Pod
from headrace_operator.decide.pod_problems import Problem

CRASH = {
    "terminated": {
        "exitCode": 1,
        "reason": "Error",
        "finishedAt": "2026-01-01T10:00:00Z",
        "message": "Traceback:\n  line 1\nValueError: no such model\n",
    }
}
# vLLM ends like this when its engine process has died, and says so itself.
QUIET_END = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T10:00:00Z"}}
UNBOUND = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes"
SITUATIONS = {
    "no volume": (
        unscheduled(UNBOUND),
        PodReason.CLAIM_NOT_BOUND,
        "its claims are models (spec.model.source)",
    ),
    "no volume to bind": (
        unscheduled("0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."),
        PodReason.CLAIM_NOT_BOUND,
        "kubectl describe pvc",
    ),
    "no storage class": (
        unscheduled('storageclass.storage.k8s.io "fast" not found'),
        PodReason.CLAIM_NOT_BOUND,
        '"fast" not found',
    ),
    "no capacity": (
        unscheduled("0/3 nodes: Insufficient nvidia.com/gpu"),
        PodReason.UNSCHEDULABLE,
        "nvidia.com/gpu; what it asks of a node is in spec.accelerator and spec.podTemplate",
    ),
    "no claim": (
        unscheduled('persistentvolumeclaim "models" not found'),
        PodReason.MODEL_CLAIM_NOT_FOUND,
        "create PersistentVolumeClaim models",
    ),
    "no other claim": (
        unscheduled('persistentvolumeclaim "extra" not found'),
        PodReason.VOLUME_CLAIM_NOT_FOUND,
        "spec.podTemplate.volumes",
    ),
    "no token": (
        container(**waiting("CreateContainerConfigError", 'secret "hub" not found')),
        PodReason.TOKEN_SECRET_NOT_FOUND,
        "spec.model.tokenSecretRef",
    ),
    "no token key": (
        container(**waiting("CreateContainerConfigError", "couldn't find key token in Secret llm/hub")),
        PodReason.TOKEN_SECRET_NOT_FOUND,
        "create the Secret with that key",
    ),
    "no other secret": (
        container(**waiting("CreateContainerConfigError", 'secret "hub-2" not found')),
        PodReason.CONFIGURATION_NOT_FOUND,
        'secret "hub-2" not found: create it',
    ),
    "no other key": (
        container(**waiting("CreateContainerConfigError", "couldn't find key proxy in Secret llm/hub")),
        PodReason.CONFIGURATION_NOT_FOUND,
        "spec.engine.env or .envFrom: couldn't find key proxy",
    ),
    "no key of a config map that is called as the secret": (
        container(**waiting("CreateContainerConfigError", "couldn't find key token in ConfigMap llm/hub")),
        PodReason.CONFIGURATION_NOT_FOUND,
        "spec.engine.env",
    ),
    "no config map": (
        container(**waiting("CreateContainerConfigError", 'configmap "x" not found')),
        PodReason.CONFIGURATION_NOT_FOUND,
        "spec.engine.env",
    ),
    "a user that the image refuses": (
        container(
            **waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
        ),
        PodReason.CONTAINER_NOT_CREATED,
        "check spec.podTemplate.securityContext",
    ),
    "no image": (
        container(**waiting("ImagePullBackOff", "not found")),
        PodReason.IMAGE_PULL_FAILED,
        "check spec.engine.image and spec.podTemplate.imagePullSecrets",
    ),
    "no image of ours": (
        container("headrace-install", **waiting("ImagePullBackOff", "not found")),
        PodReason.IMAGE_PULL_FAILED,
        "check image.registry and image.tag of the chart and spec.podTemplate.imagePullSecrets",
    ),
    "too little memory": (
        container(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
        PodReason.CRASHING,
        "with code 137 (OOMKilled), 4 times so far; give it more memory: spec.podTemplate.resources",
    ),
    "crash loop": (
        container(**waiting("CrashLoopBackOff"), lastState=CRASH),
        PodReason.CRASHING,
        "engine ended at 2026-01-01T10:00:00Z with code 1 (Error), 4 times so far; last words: ValueError",
    ),
    "just crashed": (
        container(state=CRASH),
        PodReason.CRASHING,
        "engine ended at 2026-01-01T10:00:00Z with code 1 (Error), 4 times so far; last words: ValueError",
    ),
    "restarted after a crash": (
        container(state=RUNNING, lastState=CRASH),
        PodReason.CRASHING,
        "3 times so far; last words: ValueError: no such model; it runs again: vLLM is loading the model",
    ),
    "restarted after a quiet end": (
        container(state=RUNNING, lastState=QUIET_END),
        PodReason.CRASHING,
        "at 2026-01-01T10:00:00Z with code 0 (Completed), 3 times so far; it runs again: vLLM is loading",
    ),
    "crash loop, nothing known": (
        container(**waiting("CrashLoopBackOff")),
        PodReason.CRASHING,
        "container engine ended, 3 times so far",
    ),
    "the sidecar crashes": (
        container("headrace-sidecar", state=RUNNING, lastState=CRASH),
        PodReason.CRASHING,
        "ValueError: no such model; `kubectl logs bad -c headrace-sidecar --previous` has more",
    ),
    "the installer is done": (
        container("headrace-install", state=QUIET_END),
        PodReason.STARTING,
        "being started",
    ),
    "silent, long after a crash": (
        container(state=since("10:00:00"), started=True, lastState=CRASH) | readiness("False", "10:07:00"),
        PodReason.NOT_RESPONDING,
        "health check",
    ),
    "being started": (container(**waiting("ContainerCreating")), PodReason.STARTING, "being started"),
    "loading": (container(state=RUNNING), PodReason.LOADING, "loading the model"),
    "up, not ready yet": (
        container(state=since("10:00:00"), started=True) | readiness("False", "09:59:59"),
        PodReason.LOADING,
        "loading the model",
    ),
    "silent": (
        container(state=since("10:00:00"), started=True) | readiness("False", "10:07:00"),
        PodReason.NOT_RESPONDING,
        "delete the pod if it stays so; `kubectl logs bad -c engine` has more",
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_reasons_of_a_pod_that_does_not_serve(situation):
    raw, reason, words = SITUATIONS[situation]
    seen = observed(body(), [pod("bad", ready=False, **raw), pod("good")], {"good": report(OURS)})
    ready = conditions(seen)[Condition.READY]
    assert (ready.status, ready.reason) == ("False", reason)
    assert ready.message.startswith("1 of 2 replicas ready; bad: ")
    assert words in ready.message


@pytest.mark.parametrize("phase", ["Downloading", "Loading", "Compiling"])
def test_an_engine_that_starts_says_what_it_is_doing(phase):
    starting = pod("bad", ready=False, **container(state=since("10:00:00")))
    began = 1767261600.0  # 2026-01-01T10:00:00Z
    current, stale = (report(OURS, "Starting", phase=phase, phase_since=t) for t in (began + 5, began - 5))
    assert conditions(observed(body(), [starting], {"bad": current}))[Condition.READY].reason == phase
    assert conditions(observed(body(), [starting], {"bad": stale}))[Condition.READY].reason == "Loading"
    again = pod("bad", ready=False, **container(state=since("10:00:00"), lastState=CRASH))
    ready = conditions(observed(body(), [again], {"bad": current}))[Condition.READY]
    assert ready.reason == PodReason.CRASHING
    assert PodReason(phase).text in ready.message


@pytest.mark.parametrize("phase", ["", "Crashing", "x" * 5000])
def test_a_phase_that_nobody_knows_is_loading(phase):
    starting = pod("bad", ready=False, **container(state=since("10:00:00")))
    told_ = report(OURS, "Starting", phase=phase, phase_since=float("inf"))
    assert (
        conditions(observed(body(), [starting], {"bad": told_}))[Condition.READY].reason == PodReason.LOADING
    )


def test_every_reason_of_a_pod_occurs_and_has_a_place_in_the_order():
    occurring = {reason for _, reason, _ in SITUATIONS.values()} | {
        PodReason.DOWNLOADING,
        PodReason.COMPILING,
        PodReason.NOT_ROUTED,  # only of pods with a gate: test_op_routing_status.py
    }
    assert occurring == set(PodReason)
    assert [reason.rank for reason in PodReason] == list(range(len(PodReason)))


@pytest.mark.parametrize("graver", list(PodReason))
def test_of_any_two_pods_the_gravest_problem_is_told(graver):
    for other in PodReason:
        pods = [
            Pod(name, name, "", ready=False, policy_refresh="", problem=Problem(reason, reason))
            for name, reason in (("a", other), ("b", graver))
        ]
        seen = dataclasses.replace(observed(body()), pods=tuple(pods))
        assert conditions(seen)[Condition.READY].reason == (graver if graver.rank < other.rank else other)


def serving_again(since_="2026-01-01T10:05:00Z"):
    ready = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since_}]}
    return pod("a", **container(state=since("10:00:00"), started=True, lastState=CRASH) | ready)


def test_a_crash_is_told_while_the_engine_loads_and_for_ten_minutes_after():
    loading = observed(body(), [pod("a", ready=False, **SITUATIONS["restarted after a quiet end"][0])])
    degraded = conditions(loading)[Condition.DEGRADED]
    assert (degraded.status, degraded.reason) == ("True", PodReason.CRASHING)
    assert "3 times so far" in degraded.message
    seen = observed(body(), [serving_again(), pod("b")], {"a": report(OURS), "b": report(OURS)})
    messages = set()
    for now, wait in (("10:05:00", 600.0), ("10:14:59", 1.0)):
        degraded = conditions(seen, now=f"2026-01-01T{now}Z")[Condition.DEGRADED]
        assert (degraded.status, degraded.reason) == ("True", Reason.CRASHED)
        assert seconds_until_crash_expires(seen, f"2026-01-01T{now}Z") == wait
        messages.add(degraded.message)
    assert len(messages) == 1, "it changes with events only"
    assert (
        "with code 1 (Error), 3 times so far; last words: ValueError: no such model; it serves"
        in messages.pop()
    )
    assert conditions(seen, now="2026-01-01T10:15:00Z")[Condition.DEGRADED].status == "False"
    assert seconds_until_crash_expires(seen, "2026-01-01T10:15:00Z") is None


@pytest.mark.parametrize("time", [None, "", "yesterday"])
def test_a_crash_without_a_time_is_told_while_the_engine_loads(time):
    ended = {"terminated": CRASH["terminated"] | {"finishedAt": time}}
    again = pod("a", ready=False, **container(state=RUNNING, lastState=ended))
    assert conditions(observed(body(), [again]))[Condition.DEGRADED].reason == PodReason.CRASHING


@pytest.mark.parametrize(
    ("volume", "told"), [("extra", "spec.podTemplate.volumes"), ("model", "being started")]
)
def test_volumes_that_are_not_mounted(volume, told):
    unmounted = {"conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}
    starting = pod("a", ready=False, **container(**waiting("ContainerCreating")), **unmounted)
    starting["spec"]["volumes"] = [{"name": volume, "secret": {"secretName": "missing"}}]
    ready = conditions(observed(body(), [starting]))[Condition.READY]
    assert ready.reason == PodReason.STARTING
    assert told in ready.message


def test_a_long_message_is_cut():
    seen = observed(body(), [pod("a", ready=False, **unscheduled("x" * 5000))])
    assert len(conditions(seen)[Condition.READY].message) < 800
