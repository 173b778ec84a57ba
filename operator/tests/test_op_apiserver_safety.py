"""What must never happen to what runs: by a blind operator, or by no operator at all."""

import op_release
import pytest
from op_desk import Desk
from op_kube import eventually, llmservice, ok
from op_process import Operator

from e2e.faults import Cut, Proxy, Rule, Status

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

OWNED = ("deployments", "services", "configmaps", "networkpolicies", "poddisruptionbudgets")
GPU = {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}


def ask(kube, **spec):
    model = {"source": "hf://a/b", "servedName": f"m-{kube.namespace}"}
    ok(kube.apply("llmservices", llmservice(**{"model": model, **spec})))


def lives(kube):
    """Uids and generations of what the service owns, and the pods' template."""
    mine = {"labelSelector": "headrace.dev/service=chat"}
    found = {
        (plural, item["metadata"]["name"]): (item["metadata"]["uid"], item["metadata"].get("generation"))
        for plural in (*OWNED, "resourceclaimtemplates")
        for item in kube.list(plural, **mine)
    }
    return found, kube.get("deployments", "chat")["spec"]["template"]


async def test_an_operator_that_sees_nothing_deletes_and_changes_nothing(api, own_api, kube):
    """Invariant 6: empty lists never mean that something is to be deleted or made anew."""
    desk = Desk(api, own_api, kube.namespace)
    ask(kube, accelerator=GPU)
    await desk.settle()
    before = lives(kube)
    await desk.start()
    for body in desk.remembered():  # as if every list had come back empty
        if body["kind"] != "LLMService":
            desk.operator.cache.drop(body)
    await desk.work()
    assert lives(kube) == before
    desk.operator.cache.drop(await desk.body())  # and now without the service
    await desk.work()
    assert lives(kube) == before
    assert desk.wire.deleted == []


async def test_what_an_outdated_spec_would_delete_stays(api, own_api, kube):
    """Invariant 6: a deletion follows from the live spec, not from one that the operator saw before."""
    desk = Desk(api, own_api, kube.namespace)
    ask(kube, accelerator=GPU)
    await desk.settle()
    ask(kube)
    await desk.start()  # it has seen that no devices are claimed any more
    ask(kube, accelerator=GPU)
    await desk.work()
    assert desk.wire.deleted == []
    await desk.resync()
    assert desk.wire.deleted == []
    ask(kube)
    await desk.resync()
    assert desk.wire.deleted == [("ResourceClaimTemplate", "chat-gpu")]


async def test_a_service_can_be_deleted_without_an_operator(api, own_api, kube):
    """Invariant 16: no finalizer holds it, and the garbage collector removes what it owns."""
    desk = Desk(api, own_api, kube.namespace)
    ask(kube)
    await desk.settle()
    assert "finalizers" not in (await desk.body())["metadata"]
    ok(kube.delete("llmservices", "chat"))
    assert kube.get("llmservices", "chat") is None
    mine = {"labelSelector": "headrace.dev/service=chat"}
    eventually(lambda: not any(kube.list(plural, **mine) for plural in OWNED), 180)


def test_an_operator_that_starts_in_an_outage_waits_for_its_end(crd, kube, tmp_path):
    """Invariant 7: it starts where the API server cannot be asked, and works when it can."""
    with Proxy(crd.url, crd.folder / "pki" / "ca.crt", op_release.token(crd)) as proxy:
        config = str(proxy.kubeconfig(tmp_path / "kubeconfig"))
        with proxy.outage("500"):
            operator = Operator(crd, tmp_path / "log", hurry=5.0, KUBECONFIG=config)
            eventually(lambda: "waiting for the API server" in operator.log.read_text())
            assert operator.process.poll() is None
        try:
            operator.wait()
            ask(kube)
            eventually(lambda: kube.get("deployments", "chat"))
        finally:
            operator.stop()


def test_a_watch_that_brings_nonsense_ends_the_operator_for_another_start(crd, kube, tmp_path):
    """Whatever kopf's tasks still wait for: an operator that watches no more must not seem to be at work."""
    with Proxy(crd.url, crd.folder / "pki" / "ca.crt", op_release.token(crd)) as proxy:
        config = str(proxy.kubeconfig(tmp_path / "kubeconfig"))
        operator = Operator(crd, tmp_path / "log", KUBECONFIG=config).wait()
        others = Rule(Status(429), lambda call: call.watch and not call.path.endswith("/llmservices"))
        try:
            with proxy.rule(Rule(Cut(orderly=True))), proxy.rule(others):
                kube.start()
                assert operator.process.wait(30) == 1
        finally:
            operator.process.kill()
            operator.process.wait()
    log = (tmp_path / "log").read_text()
    assert "JSONDecodeError" in log
    assert "cut off" not in log
