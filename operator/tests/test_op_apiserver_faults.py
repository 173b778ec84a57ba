"""The operator as a process, its way to the API server broken in every way that networks know.

Its waits of a minute and more are shortened; `HEADRACE_HURRY=1` leaves them as they are, and outages then
last five minutes.
"""

import itertools
import os
import threading
import time

import op_release
import pytest
from op_kube import eventually, ok
from op_kubelet import FakeNode
from op_process import Operator

from e2e.faults import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    Gone,
    Hold,
    Proxy,
    Reset,
    Rule,
    Status,
)

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

HURRY = float(os.environ.get("HEADRACE_HURRY", "20"))
OUTAGE_SECONDS = 300.0 if HURRY == 1.0 else 0.0
FAILED = ("0", "429", "500")  # codes that the operator counts its failed requests under
CHAOS = [
    Rule(Delay(0.05), share=0.2),
    Rule(Reset(), share=0.04),
    Rule(Reset(after=True), share=0.04),
    Rule(Status(500), share=0.04),
    Rule(Status(429, retry_after=1), share=0.04),
    Rule(Status(409), lambda call: call.write, share=0.1),
    Rule(Gone(), share=0.05),
    Rule(Cut(), share=0.1),
    Rule(Drop(), share=0.2),
    Rule(Duplicate(), share=0.2),
    Rule(Hold(), share=0.2),
]


@pytest.fixture(scope="module")
def proxy(crd):
    with Proxy(crd.url, crd.folder / "pki" / "ca.crt", op_release.token(crd)) as running:
        yield running


@pytest.fixture(scope="module")
def operator(crd, proxy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("operator")
    config = str(proxy.kubeconfig(folder / "kubeconfig"))
    running = Operator(crd, folder / "log", hurry=HURRY, KUBECONFIG=config).wait()
    yield running
    running.stop()


def replicas(kube, name="chat"):
    return (kube.get("deployments", name) or {"spec": {}})["spec"].get("replicas")


def observed(kube, name="chat"):
    """Whether the operator has told of the last generation, and accepted it."""
    body = kube.get("llmservices", name)
    current = body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"]
    return current and kube.condition(name, "Accepted")[0] == "True"


def running(kube, count=2, name="chat"):
    return observed(kube, name) and replicas(kube, name) == count and kube.get("services", name)


def failures(operator):
    return sum(operator.metric("headrace_operator_api_requests_total", code=code) for code in FAILED)


def deletions(proxy, since):
    return [call.path for call in proxy.calls(since) if call.method == "DELETE"]


@pytest.mark.parametrize("kind", Proxy.OUTAGES)
def test_an_outage_deletes_nothing_and_heals(kube, proxy, operator, kind):
    """Invariant 7: no deletion, no restart, few requests; what was changed meanwhile is done afterwards."""
    kube.start()
    eventually(lambda: running(kube))
    before = kube.get("deployments", "chat")
    began, failed = time.monotonic(), failures(operator)
    with proxy.outage(kind):
        ok(kube.patch("llmservices", "chat", {"spec": {"replicas": 3}}))
        ok(kube.delete("services", "chat"))
        eventually(lambda: failures(operator) >= failed + 2)
        eventually(lambda: time.monotonic() >= began + OUTAGE_SECONDS, OUTAGE_SECONDS + 60, every=1.0)
        assert replicas(kube) == 2
        asked = len(proxy.calls(began))
        lasted = time.monotonic() - began
    eventually(lambda: running(kube, 3), 60)
    after = kube.get("deployments", "chat")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["template"] == before["spec"]["template"]
    assert deletions(proxy, began) == []
    assert operator.process.poll() is None
    if OUTAGE_SECONDS:
        assert asked / lasted <= 1.0


def test_a_silent_watch_is_noticed(kube, proxy, operator):
    """Invariant 9: a watch that stays open and brings nothing is given up."""
    kube.start()
    eventually(lambda: running(kube))
    began = time.monotonic()
    proxy.silence()
    ok(kube.patch("llmservices", "chat", {"spec": {"replicas": 3}}))
    eventually(lambda: running(kube, 3))
    watched = {"llmservices", "deployments", "pods"}
    eventually(lambda: watched <= {call.path.rpartition("/")[2] for call in proxy.calls(began) if call.watch})


def test_lost_doubled_late_and_failing_traffic_leads_to_the_same_end(kube, proxy, operator):
    """Invariant 5: whatever happens to events and requests, the end is that of the last spec."""
    began, counts = time.monotonic(), iter(itertools.cycle((3, 0, 1)))
    every = {type(rule.fault).__name__ for rule in CHAOS}

    def shaken():
        count = next(counts)
        ok(kube.patch("llmservices", "chat", {"spec": {"replicas": count}}))
        eventually(lambda: replicas(kube) == count)
        return every <= set(proxy.script.counts)

    proxy.script.counts.clear()
    proxy.script.rules.extend(CHAOS)
    try:
        kube.start(accelerator={"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}})
        eventually(shaken, 240)
        ok(kube.delete("services", "chat"))
        ok(kube.patch("llmservices", "chat", {"spec": {"scheduling": {"policy": "LARRY"}}}))
        eventually(lambda: kube.get("services", "chat"))
    finally:
        proxy.script.rules.clear()
    assert deletions(proxy, began) == []
    ok(
        kube.patch(
            "llmservices", "chat", {"spec": {"accelerator": {"type": "CPU", "dra": None}, "replicas": 2}}
        )
    )
    eventually(lambda: running(kube) and kube.get("resourceclaimtemplates", "chat-gpu") is None)
    assert '"LARRY"' in kube.get("configmaps", "chat-policy")["data"]["policy.json"]
    assert deletions(proxy, began) != []
    assert operator.process.poll() is None, operator.log.read_text()


class Rival:
    """Changes an object of ours twenty times a second, from a thread."""

    def __init__(self, kube, plural, name, patch, sub=""):
        self.edits = 0
        self._change = lambda: kube.patch(plural, name, patch(self.edits), sub=sub, manager="rival")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop.wait(0.05):
            ok(self._change())
            self.edits += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(60)


QUARRELS = {
    "deployment": (
        "deployments",
        lambda n: {"metadata": {"annotations": {"example.com/n": str(n)}}, "spec": {"replicas": 5 + n % 2}},
        "",
    ),
    "status": ("llmservices", lambda n: {"status": {"replicas": 50 + n % 2}}, "status"),
}


@pytest.mark.parametrize("case", QUARRELS)
def test_a_quarrel_stays_slow_and_ends_as_the_spec_says(kube, proxy, operator, case):
    """Invariant 8: at most two writes a second against another writer, whose own fields stay."""
    plural, patch, sub = QUARRELS[case]
    kube.start()
    eventually(lambda: running(kube))
    path = kube.path(plural, "chat", sub)
    began = time.monotonic()
    with Rival(kube, plural, "chat", patch, sub) as rival:
        eventually(lambda: rival.edits >= (1200 if OUTAGE_SECONDS else 80), 240)
        lasted = time.monotonic() - began
        written = sum(call.write and call.path == path for call in proxy.calls(began))
    assert 2 <= written <= 2 * lasted + 2
    eventually(lambda: replicas(kube) == 2, 10)
    eventually(lambda: kube.get("llmservices", "chat")["status"]["replicas"] == 2, 10)
    if case == "deployment":
        assert kube.get("deployments", "chat")["metadata"]["annotations"]["example.com/n"]


def test_a_paused_service_is_not_written_to(kube, proxy, operator):
    """Invariant 19: while the annotation is set, nothing but the status is written."""
    kube.start()
    eventually(lambda: running(kube))
    pause = {"metadata": {"annotations": {"headrace.dev/paused": "true"}}}
    ok(kube.patch("llmservices", "chat", pause))
    eventually(lambda: kube.condition("chat", "Reconciling")[1] == "Paused")
    began = time.monotonic()
    ok(kube.patch("llmservices", "chat", {"spec": {"replicas": 3, "scheduling": {"policy": "LARRY"}}}))
    ok(kube.patch("deployments", "chat", {"spec": {"replicas": 1}}))
    ok(kube.delete("services", "chat"))
    eventually(lambda: kube.get("llmservices", "chat")["status"]["observedGeneration"] == 2)
    mine = f"/namespaces/{kube.namespace}/"
    written = [call.path for call in proxy.calls(began) if call.write and mine in call.path]
    assert [path for path in written if not path.endswith("/status") and "/events" not in path] == []
    ok(kube.patch("llmservices", "chat", {"metadata": {"annotations": {"headrace.dev/paused": None}}}))
    eventually(lambda: running(kube, 3))


def test_a_rollout_keeps_as_many_replicas_as_it_must(kube, operator):
    """Invariant 18: never fewer ready replicas than `replicas - maxUnavailable`, at any event of the pods."""
    kube.start(replicas=3, disruption={"maxUnavailable": 1, "maxSurge": 0})
    with FakeNode(kube):
        eventually(lambda: kube.condition("chat", "Ready")[0] == "True")
        began = len(kube.list("pods"))
        ok(kube.patch("llmservices", "chat", {"spec": {"engine": {"image": "example/vllm:2"}}}))
        ready = []

        def rolled():
            pods = kube.list("pods", labelSelector="headrace.dev/service=chat")
            ready.append(sum(is_ready(pod) for pod in pods))
            new = [pod for pod in pods if image(pod) == "example/vllm:2" and is_ready(pod)]
            return len(new) == 3

        eventually(rolled, every=0.0)
    assert began == 3
    assert min(ready) == 2
    assert ready[-1] == 3


def is_ready(pod):
    conditions = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", [])}
    return "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"


def image(pod):
    return next(c["image"] for c in pod["spec"]["containers"] if c["name"] == "engine")
