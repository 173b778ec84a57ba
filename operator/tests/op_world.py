"""Builders of raw cluster objects for tests of the pure parts."""

import copy

from op_golden import SETTINGS
from op_kube import llmservice

from headrace_engine.contracts import AppliedPolicy, EngineInfo, EngineStatus
from headrace_operator import names
from headrace_operator.api import parse_service, policy_document
from headrace_operator.decide.model_names import served_model_names
from headrace_operator.decide.observation import SidecarReport, observe
from headrace_operator.desired import desired_objects

RUNNING = {"running": {}}
MAKER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-1", "uid": "maker", "controller": True}


def body(name="chat", namespace="llm", created="2026-01-01T00:00:00Z", **spec):
    raw = llmservice(name, **spec)
    raw["metadata"] |= {
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "generation": 1,
        "creationTimestamp": created,
        "resourceVersion": "1",
    }
    return raw


def applied(raw, settings=SETTINGS, live=None):
    """The owned objects as the API server would return them after they were applied."""
    service = parse_service(raw)
    objects = [
        copy.deepcopy(dict(item))
        for item in desired_objects(service, settings, served_model_names(service), live)
    ]
    for item in objects:
        item["metadata"] |= {"uid": f"{item['kind']}-{item['metadata']['name']}", "generation": 1}
        if item["kind"] == "LLMRoute":
            item["status"] = routed("p0", "p1")
        if item["kind"] == "Deployment":
            count = item["spec"]["replicas"]
            counts = ("replicas", "updatedReplicas", "readyReplicas")
            item["status"] = {"observedGeneration": 1} | dict.fromkeys(counts, count)
    return objects


def routed(*pods, generation=1, **reasons):
    """What a picker reports of a route, with these UIDs.

    `Accepted="Reason"` or `Programmed=` make that condition false.
    """
    return {
        "observedGeneration": generation,
        "envoys": 2,
        "pods": list(pods),
        "conditions": [
            {
                "type": kind,
                "status": str(kind not in reasons),
                "reason": reasons.get(kind, kind),
                "message": "words",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind in ("Accepted", "Programmed")
        ],
    }


def pod(name, ready=True, **status):
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    volumes = [{"name": "model", "persistentVolumeClaim": {"claimName": "models"}}]
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    labels = {names.SERVICE_LABEL: "chat"}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "llm",
            "uid": name,
            "labels": labels,
            "ownerReferences": [MAKER],
        },
        "spec": {"volumes": volumes, "containers": [{"name": "engine", "env": [token]}]},
        "status": {"podIP": "10.0.0.1", "conditions": conditions, **status},
    }


def pace(deployment):
    """How many replicas may start on top, and how many may be away."""
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    return rolling["maxSurge"], rolling["maxUnavailable"]


def report(
    hash_,
    state="Idle",
    reason="",
    *,
    phase="",
    phase_since=0.0,
    name="FCFS",
    turn_group="",
    without_turns=False,
    **policy,
):
    info = EngineInfo(state, reason, vllm_version="0.32.0", phase=phase, phase_since=phase_since)
    return SidecarReport(
        EngineStatus(
            *("0.1.0", ("FCFS", "LARRY"), 1, info, AppliedPolicy(name, hash_, **policy)),
            turn_group=turn_group,
            without_turns=without_turns,
        )
    )


def hash_of(raw):
    return policy_document(parse_service(raw)).hash


def observed(raw, pods=(), reports=None, objects=None):
    return observe(applied(raw) if objects is None else objects, pods, reports or {})
