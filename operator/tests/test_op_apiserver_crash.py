"""The operator's process ends between any two calls of a reconcile; a fresh one goes on."""

import pytest
from op_desk import Desk, KilledError, accepted
from op_kube import llmservice, ok

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

GPU = {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}
TWO = {"image": "example/vllm:2", "tensorParallelSize": 2}
# What runs before (None: nothing), and what is then asked for.
CHANGES = {
    "a new service": (None, {}),
    "another engine, without the devices": ({"accelerator": GPU}, {"engine": {"image": "example/vllm:2"}}),
    "twice the devices": ({"accelerator": GPU}, {"accelerator": GPU, "engine": TWO}),
}


def ask(kube, spec):
    model = {"source": "hf://a/b", "servedName": f"m-{kube.namespace}"}
    ok(kube.apply("llmservices", llmservice(**{"model": model, **spec})))


async def change(desk, kube, before, after, dies_at=None):
    """From `before` to `after`, with a death in between; the calls and deletions of the change alone."""
    await desk.clear()
    if before is not None:
        ask(kube, before)
        await desk.settle()
    ask(kube, after)
    calls, deletions = len(desk.wire.calls), len(desk.wire.deleted)
    await desk.start()
    desk.wire.dies_at = None if dies_at is None else calls + dies_at
    try:
        await desk.work()
    except KilledError:
        assert dies_at
    desk.wire.dies_at = None
    made = len(desk.wire.calls) - calls
    await desk.settle()
    return made, set(desk.wire.deleted[deletions:])


@pytest.mark.parametrize("case", CHANGES)
async def test_a_death_between_any_two_calls_changes_nothing_of_the_end(
    api, own_api, kube, case, record_property
):
    """Invariant 4: the same fixpoint, and no deletion that the undisturbed operator would not make."""
    desk = Desk(api, own_api, kube.namespace)
    calls, deletions = await change(desk, kube, *CHANGES[case])
    undisturbed = await desk.snapshot()
    assert calls > 5
    different = []
    for point in range(1, calls + 1):
        _, deleted = await change(desk, kube, *CHANGES[case], dies_at=point)
        end, told = await desk.snapshot(), accepted(await desk.body())
        if end != undisturbed or not deleted <= deletions or told != (True, "True"):
            different.append(point)
    record_property("cases", calls)
    record_property("held", calls - len(different))
    assert different == [], f"of {calls} calls, deaths before these"
    assert desk.wire.wrong == []


async def test_a_fresh_operator_writes_nothing_where_all_is_done(api, own_api, kube):
    """Invariant 3: no write at the fixpoint, whatever the operator remembers."""
    desk = Desk(api, own_api, kube.namespace)
    for spec in ({}, {"accelerator": GPU, "engine": TWO}):
        ask(kube, spec)
        await desk.settle()
        writes = len(desk.wire.writes)
        for _ in range(3):
            await desk.start()
            await desk.work()
            await desk.work()
        assert len(desk.wire.writes) == writes
