"""Events: one per transition, counted up when the same happens again, and never a reason to fail."""

import pytest
from op_world import body, hash_of, observed, pod, report

from headrace_operator.api import Key
from headrace_operator.decide.service_events import ServiceEvent, service_events
from headrace_operator.decide.service_status import Executed, Subject, build_status
from headrace_operator.errors import ApiError, RefusedError
from headrace_operator.kube.event_recorder import EventRecorder


def told(seen, refused=None):
    return build_status(
        Subject(Key("llm", "chat"), 1, 2, False, Executed.ALL, {}),
        seen,
        refused,
        "",
        gateway="g",
        now="2026-01-01T00:00:00Z",
    )


def as_json(current):
    return current.model_dump(mode="json", by_alias=True)


def serving():
    ours = hash_of(body())
    return observed(body(), [pod("a"), pod("b")], {"a": report(ours), "b": report(ours)})


def test_what_changed_is_told_and_what_did_not_is_not():
    first, second = told(observed(body())), told(serving())
    assert [h.reason for h in service_events({}, first)] == ["Valid", "Starting"]
    happenings = list(service_events(as_json(first), second))
    assert [h.reason for h in happenings] == ["AllReplicasReady", "Applied"]
    assert not any(h.warning for h in happenings)
    assert list(service_events(as_json(second), second)) == []


def test_a_refusal_is_a_warning():
    happenings = list(
        service_events(as_json(told(serving())), told(serving(), RefusedError("InvalidSpec", "spec.x")))
    )
    assert [(h.reason, h.warning) for h in happenings] == [("InvalidSpec", True)]
    assert happenings[0].note.startswith("Accepted=False: spec.x")


@pytest.mark.parametrize("message", ["x" * 5000, "é" * 5000, "x" + "é" * 5000, "模" * 5000, "short"])
def test_a_note_is_no_longer_than_an_event_takes(message):
    [event] = service_events(as_json(told(serving())), told(serving(), RefusedError("InvalidSpec", message)))
    assert len(event.note.encode()) <= 1024
    assert event.note.startswith("Accepted=False: ")
    if message == "short":
        assert message in event.note
    else:
        assert len(event.note.encode()) > 1020
        assert event.note.endswith("…")


class FakeEvents:
    """The events part of a cluster."""

    def __init__(self):
        self.created, self.repeats = {}, []
        self.down = False

    async def create_event(self, event):
        if self.down:
            raise ApiError(503, "down")
        name = event["metadata"]["name"]
        if name in self.created:
            return False
        self.created[name] = event
        return True

    async def repeat_event(self, namespace, name, count, now):
        self.repeats.append((namespace, name, count))


HAPPENING = ServiceEvent(warning=True, reason="Crashing", note="Ready=False: it crashed", action="Reconcile")


async def test_the_same_again_counts_up():
    cluster = FakeEvents()
    recorder = EventRecorder(cluster)
    for _ in range(3):
        await recorder.record(body(), HAPPENING)
    [(name, event)] = cluster.created.items()
    assert cluster.repeats == [("llm", name, 2), ("llm", name, 3)]
    assert event["type"] == "Warning"
    assert event["regarding"]["uid"] == "llm-chat"


async def test_events_are_not_worth_a_failure():
    cluster = FakeEvents()
    cluster.down = True
    await EventRecorder(cluster).record(body(), HAPPENING)
    assert cluster.created == {}


async def test_an_event_that_is_refused_shows_in_the_log(caplog):
    cluster = FakeEvents()

    async def refuse(event):
        raise ApiError(422, "note: can have at most 1024 bytes")

    cluster.create_event = refuse
    await EventRecorder(cluster).record(body(), HAPPENING)
    assert "note: can have at most 1024 bytes" in caplog.text
