"""Two replicas of the operator, each with its own way to a real API server, so that writes are told apart.

`HEADRACE_KILLS=20` kills that many leaders.
"""

import contextlib
import os
import signal
import time

import op_release
import pytest
from op_kube import eventually, ok
from op_process import Operator

from e2e.faults import Proxy

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(400)]

KILLS = int(os.environ.get("HEADRACE_KILLS", "1"))


class Replica:
    """One replica behind a proxy of its own."""

    def __init__(self, crd, folder, lease, stack):
        self.proxy = stack.enter_context(Proxy(crd.url, crd.folder / "pki" / "ca.crt", op_release.token(crd)))
        folder.mkdir()
        config = str(self.proxy.kubeconfig(folder / "kubeconfig"))
        self.operator = Operator(crd, folder / "log", KUBECONFIG=config, HEADRACE_LEASE=lease)
        stack.callback(self._end)

    @property
    def leads(self):
        return self.operator.metric("headrace_operator_leader") == 1.0

    def writes(self, since):
        """Paths of what it wrote of services."""
        return [c.path for c in self.proxy.calls(since) if c.write and "/leases" not in c.path]

    def signal(self, number):
        os.kill(self.operator.process.pid, number)

    def _end(self):
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        self.operator.process.kill()
        self.operator.process.wait(60)


@pytest.fixture
def pair(crd, kube, tmp_path):
    with contextlib.ExitStack() as stack:
        replicas = [Replica(crd, tmp_path / name, f"pair-{kube.namespace}", stack) for name in "ab"]
        for replica in replicas:
            replica.operator.wait()  # also the one that stands by is ready
        eventually(lambda: [replica.leads for replica in replicas].count(True) == 1)
        yield sorted(replicas, key=lambda replica: not replica.leads)


def scaled(kube, count):
    return (kube.get("deployments", "chat") or {"spec": {}})["spec"].get("replicas") == count


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_killed_leader_is_followed_within_twenty_seconds(kube, pair, kill):
    """Invariant 15: only the leader writes, and another has taken over 20 s after it was killed."""
    leader, standby = pair
    began = time.monotonic()
    kube.start()
    eventually(lambda: scaled(kube, 2))
    assert leader.writes(began)
    assert standby.writes(began) == []
    leader.signal(signal.SIGKILL)
    killed = time.monotonic()
    ok(kube.patch("llmservices", "chat", {"spec": {"replicas": 3}}))
    eventually(lambda: scaled(kube, 3), 20)
    assert leader.writes(killed + 1.0) == []  # what it had sent before may arrive until then
    assert standby.writes(killed + 1.0)


def test_a_suspended_leader_writes_nothing_when_it_wakes(kube, pair):
    """Invariant 15: no double writer, also when the old leader does not know that time has passed."""
    leader, standby = pair
    kube.start()
    eventually(lambda: scaled(kube, 2))
    eventually(lambda: leader.writes(time.monotonic() - 2.0) == [])  # nothing of it is on its way
    leader.signal(signal.SIGSTOP)
    eventually(lambda: standby.leads, 20)
    woken = time.monotonic()
    for count in range(3, 9):  # it wakes into changes that it would carry out, too
        ok(kube.patch("llmservices", "chat", {"spec": {"replicas": count}}))
        if count == 5:
            leader.signal(signal.SIGCONT)
        eventually(lambda count=count: scaled(kube, count))
    eventually(lambda: not leader.leads)
    assert leader.writes(woken) == []
    assert standby.leads


def test_a_leader_that_is_stopped_hands_over_at_once(kube, pair):
    """Invariant 15: an upgrade waits for no Lease to run out."""
    leader, standby = pair
    leader.operator.stop()
    eventually(lambda: standby.leads, 5)
