"""What is told of a service, and pods in all situations, for tests of conditions."""

from op_world import body, hash_of, observed, pod

from headrace_operator.api import Key
from headrace_operator.decide.service_status import Executed, Subject, build_status

OURS = hash_of(body())
NOW = "2026-01-02T00:00:00Z"


def told(seen, refused=None, failure="", previous=None, *, paused=False, carried=Executed.ALL, now=NOW):
    subject = Subject(Key("llm", "chat"), 7, 3, paused, carried, previous or {})
    return build_status(subject, seen, refused, failure, gateway="http://gw", now=now)


def conditions(*args, **kwargs):
    return {c.type: c for c in told(*args, **kwargs).conditions}


def both(*engines):
    names = [f"p{i}" for i in range(len(engines))]
    return observed(body(), [pod(name) for name in names], dict(zip(names, engines, strict=True)))


def unscheduled(message):
    return {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}


def container(name="engine", **state):
    return {"containerStatuses": [{"name": name, "restartCount": 3, "started": False, "state": {}, **state}]}


def waiting(reason, message=""):
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def since(time):
    return {"running": {"startedAt": f"2026-01-01T{time}Z"}}


def readiness(status, time):
    return {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": f"2026-01-01T{time}Z"}]}
