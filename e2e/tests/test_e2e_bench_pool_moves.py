"""The study of moves on a running cluster: what stand-ins tell, and on which devices services are found."""

import json
import time

import pytest

from e2e.bench.pool_moves import study
from e2e.bench.pool_moves.asked_pods import HOUR, AskedPods
from headrace_engine.contracts import EngineStatus, decode, dumps, text_hash
from headrace_engine.contracts.traffic import Traffic
from headrace_engine.contracts.turn_group import TurnGroup

GROUP = dumps(TurnGroup(host="10.0.3.7", port=9500, token="c0ffee00" * 4))


class FakeKube:
    """Lists objects by kind."""

    def __init__(self, **items):
        self.listed = items

    def items(self, _namespace, kind, _selector=""):
        return self.listed.get(kind, [])


def pod(service, number=0, *, claims=(), made="", **metadata):
    """A pod of a service; `claims`: names in its spec; `made`: of one made from a template."""
    named = [{"name": "gpu", "resourceClaimName": claim} for claim in claims]
    template = [{"name": "gpu", "resourceClaimTemplateName": "a-template"}] if made else []
    return {
        "metadata": {"uid": f"{service}-{number}", "labels": {"headrace.dev/service": service}, **metadata},
        "spec": {"resourceClaims": [*named, *template]},
        "status": {
            "podIP": f"10.245.0.{number}",
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": made}] if made else [],
        },
    }


def claim(name, *devices):
    results = [{"pool": "gpu-0", "device": device} for device in devices]
    return {"metadata": {"name": name}, "status": {"allocation": {"devices": {"results": results}}}}


@pytest.fixture
def answers(tmp_path):
    """What two pods of one service tell after an hour of a request each second."""
    data = {"policy.json": json.dumps({"policy": "LARRY", "hash": "abc"}), "turn-group.json": GROUP}
    kube = FakeKube(
        configmaps=[{"metadata": {"name": "a-policy"}, "data": data}],
        pods=[pod("a", 1), pod("a", 2), pod("of another", 3)],
    )
    asked = AskedPods(kube, "llm", tmp_path / "answers.json", {"a": 1.0})
    asked.asked_since = time.time() - HOUR
    asked.answer()
    return json.loads((tmp_path / "answers.json").read_text())


def test_pods_say_that_they_have_what_they_were_given(answers):
    assert answers.keys() == {"10.245.0.1", "10.245.0.2"}
    status = decode(EngineStatus, answers["10.245.0.1"]["/status"])
    assert (status.policy.name, status.policy.applied_hash) == ("LARRY", "abc")
    assert status.turn_group == text_hash(GROUP.encode())


def test_requests_come_to_one_pod_each(answers):
    told = [decode(Traffic, each["/traffic"]).windows for each in answers.values()]
    counts = [sum(window.requests for window in windows) for windows in told]
    assert 3300 < sum(counts) < 3900
    assert min(counts) > 1500


def test_devices_are_found_through_claims_of_pods_and_of_groups():
    kube = FakeKube(
        resourceclaims=[claim("shared", "0", "1"), claim("own", "2"), claim("left", "3")],
        pods=[
            pod("a", claims=["shared"]),
            pod("b", claims=["shared"]),
            pod("c", made="own"),
            pod("c", claims=["left"], deletionTimestamp="2026-01-01T00:00:00Z"),
        ],
    )
    assert study.devices(kube, {"a": {}, "b": {}, "c": {}}) == {
        "a": {"gpu-0/0", "gpu-0/1"},
        "b": {"gpu-0/0", "gpu-0/1"},
        "c": {"gpu-0/2"},
    }
