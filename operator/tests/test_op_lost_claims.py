"""Claims of pods that should have ended long ago are given up; those that a pod may still use are not."""

from datetime import datetime

import pytest

from headrace_operator.decide.lost_claims import LOST_SECONDS, find_lost_claims

GRACE = "2026-11-30T12:00:00Z"
END = datetime.fromisoformat(GRACE).timestamp()
LATE = END + LOST_SECONDS


def pod(claim="a", until=GRACE, node="node-a", **status):
    claims = [{"name": "gpu", "resourceClaimName": claim}] if claim else None
    metadata = {"name": "pod"} | ({"deletionTimestamp": until} if until else {})
    return {"metadata": metadata, "spec": {"nodeName": node, "resourceClaims": claims}, "status": status}


def test_a_claim_is_lost_some_time_after_all_of_its_pods_should_have_ended():
    later = "2026-11-30T12:00:30Z"
    pods = [pod(), pod(until=later)]
    assert find_lost_claims(pods, END).names == frozenset()
    assert find_lost_claims(pods, LATE).names == frozenset()
    assert find_lost_claims(pods, LATE + 30.0).names == {"a"}
    assert find_lost_claims([*pods, pod("b")], LATE).names == {"b"}


@pytest.mark.parametrize("other", [pod(until=None), pod(until="2999-01-01T00:00:00Z")])
def test_a_claim_that_a_pod_may_still_use_is_not(other):
    assert find_lost_claims([pod(), other], LATE).names == frozenset()


@pytest.mark.parametrize("other", [pod(until=None, node=None), pod(until=None, phase="Failed")])
def test_pods_that_have_no_devices_yet_or_no_more_do_not_count(other):
    """A new pod waits for the dead node."""
    assert find_lost_claims([pod(), other], LATE).names == {"a"}
    assert find_lost_claims([other, pod(None)], LATE) == (frozenset(), None)


def test_it_is_looked_again_when_a_claim_may_be_lost():
    assert find_lost_claims([pod()], END).due == LATE
    assert find_lost_claims([pod(), pod(until=None)], END).due == LATE, "the other may come to end"
    assert find_lost_claims([pod(until=None)], END).due is None
    assert find_lost_claims([pod()], LATE).due is None
