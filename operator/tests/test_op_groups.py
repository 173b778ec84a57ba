"""Services are moved to where a plan has them, one after another, and back."""

import pytest
from op_devices import raw_member
from op_planning import planned_groups, planned_pool
from op_pool_memory import claim_of, claims, condition, settle, update, with_services
from op_world import pace, pod

from headrace_operator.api import Reason
from headrace_operator.api.engine_arguments import parse_arguments
from headrace_operator.api.placement import PlanStatus
from headrace_operator.planning.question import Answer


def planned(*groups, today=2):
    """An answer with a plan of groups: GPUs, then members."""
    found = planned_groups(*groups)
    gpus = sum(group.gpus for group in found)
    plan = PlanStatus(time="2026-01-01T00:00:00Z", gpus=gpus, gpus_today=today, groups=found)
    return Answer(Reason.PLAN_MADE, "made", plan)


def places(memory):
    """By service: what its pods name, its share of the memory, its GPUs, and its replicas."""
    found = {}
    for name in ("chat", "code"):
        engine = engine_of(memory, name)
        text = " ".join([*engine.get("command", ()), *engine["args"]])
        options = parse_arguments(text.split())
        found[name] = (
            claim_of(memory, name),
            options["gpu-memory-utilization"],
            options.get("tensor-parallel-size", "1"),
            memory.objects["Deployment", name]["spec"]["replicas"],
        )
    return found


def engine_of(memory, name):
    pod = memory.objects["Deployment", name]["spec"]["template"]["spec"]
    return next(container for container in pod["containers"] if container["name"] == "engine")


def roll_out(memory):
    """Have the pods of all services ready, as the Deployment controller does."""
    for name in [name for kind, name in memory.objects if kind == "LLMService"]:
        live = memory.objects["Deployment", name]
        wanted = live["spec"]["replicas"]
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), wanted)
        memory.store({**live, "status": {"observedGeneration": 1, **counts}})


async def move(memory, answer):
    """Carry a plan out to its end; returns where services were at each step."""
    steps = []
    for _ in range(8):
        await settle(memory, answer)
        steps += [now] if (now := places(memory)) not in steps else []
        if condition(memory, "AsPlanned")[1] != "Moving":
            return steps
        roll_out(memory)
    raise AssertionError("it does not end")


OWN = {name: (f"{name}-gpu", "0.40", "1", 1) for name in ("chat", "code")}


def services_on_their_own(**gpus):
    memory = with_services(raw_member("chat"), raw_member("code"))
    memory.store(planned_pool("chat", "code", gpus=gpus, mode="Auto"))
    return memory


async def test_services_move_to_shared_gpus_one_after_another():
    memory = services_on_their_own()
    await settle(memory)
    roll_out(memory)
    assert places(memory) == OWN
    steps = await move(memory, planned((1, "chat", "code")))
    [claim] = claims(memory)
    there = dict.fromkeys(("chat", "code"), (claim, "0.45", "1", 1))
    assert steps == [{**there, "code": OWN["code"]}, there]
    assert condition(memory, "AsPlanned") == ("True", "NothingToMove")
    assert condition(memory, "Placed") == ("False", "DevicesNotAllocated")
    assert memory.turn_group("chat") == memory.turn_group("code") is not None
    assert [m["name"] for m in memory.objects["GPUPool", "shared"]["status"]["placement"]["services"]] == [
        "chat",
        "code",
    ]


async def test_new_engines_start_beside_the_old_ones_while_gpus_are_free_for_both():
    memory = services_on_their_own(count=3)
    await settle(memory)
    roll_out(memory)
    await settle(memory, planned((1, "chat", "code")))
    for _ in range(2):  # and another operator sees the move as it is
        assert pace(memory.objects["Deployment", "chat"]) == (1, 0)
        assert places(memory)["code"] == OWN["code"]
        await settle(memory)
    await rolled_out(memory)
    assert pace(memory.objects["Deployment", "chat"]) == (0, 1), "on shared devices none starts on top"
    assert pace(memory.objects["Deployment", "code"]) == (1, 0)
    await rolled_out(memory)
    assert {pace(memory.objects["Deployment", name]) for name in ("chat", "code")} == {(0, 1)}


async def rolled_out(memory):
    """Have what runs be ready, and then what is told by that."""
    for _ in range(2):
        roll_out(memory)
        await settle(memory)


async def test_a_pod_that_still_ends_holds_up_the_next_move():
    memory = services_on_their_own()
    await settle(memory)
    roll_out(memory)
    await settle(memory, planned((1, "chat", "code")))
    ending = pod("chat-old")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    memory.store(ending)
    await rolled_out(memory)
    assert condition(memory, "AsPlanned") == ("False", "Moving")
    assert places(memory)["code"] == OWN["code"]
    del memory.objects["Pod", "chat-old"]
    await rolled_out(memory)
    assert places(memory)["code"][0] == claim_of(memory, "chat")


async def told_to_change_places():
    """Chat and code, each on a full GPU with another, and a plan in which each is where the other was."""
    names = ("chat", "code", "left", "right")
    memory = with_services(*map(raw_member, names))
    memory.store(planned_pool(*names, gpus={"count": 4}, mode="Auto"))
    await settle(memory)
    roll_out(memory)
    await move(memory, planned((1, "chat", "left"), (1, "code", "right"), today=4))
    memory.objects["GPUPool", "shared"]["status"]["placement"]["time"] = "2026-01-01T00:00:00Z"
    return memory, planned((1, "code", "left"), (1, "chat", "right"), today=4)


async def test_of_services_that_change_places_one_has_no_engines_until_the_other_has_moved():
    memory, plan = await told_to_change_places()
    before = places(memory)
    steps = await move(memory, plan)
    assert [(step["chat"][3], step["code"][3]) for step in steps] == [(0, 1), (1, 1)]
    assert steps[0]["code"][0] == before["chat"][0]
    assert (steps[1]["chat"][0], steps[1]["code"][0]) == (before["code"][0], before["chat"][0])
    assert condition(memory, "AsPlanned") == ("True", "NothingToMove")


async def test_a_service_without_engines_says_that_it_waits_to_move():
    memory, plan = await told_to_change_places()
    before = places(memory)
    memory.store(pod("chat-1"))
    await settle(memory, plan)
    assert condition(memory, "AsPlanned") == ("False", "Moving")
    assert condition(memory, "Ready", "chat", "LLMService") == ("False", "WaitingToMove")
    assert places(memory) == {**before, "chat": (*before["chat"][:3], 0)}, "its pod has not ended"


@pytest.mark.parametrize(("count", "gpus"), [(2, 1), (3, 1), (4, 2)])
async def test_services_that_are_parted_are_on_gpus_of_their_own_as_their_specs_say(count, gpus):
    memory = services_on_their_own(count=count)
    await settle(memory)
    roll_out(memory)
    await move(memory, planned((1, "chat", "code")))
    memory.objects["GPUPool", "shared"]["status"]["placement"]["time"] = "2026-01-01T00:00:00Z"
    parted = planned((gpus, "chat"), (1, "code"), today=4)
    await settle(memory, parted)
    assert condition(memory, "AsPlanned") == ("False", "Moving")
    assert pace(memory.objects["Deployment", "chat"]) == (1, 0), "its new engine starts beside the old one"
    steps = await move(memory, parted)
    assert steps[-1] == {**OWN, "chat": ("chat-gpu", "0.40", str(gpus), 1)}
    assert all(step[name][3] == 1 for step in steps for name in step)


async def test_a_service_may_get_more_engines_and_none_if_its_spec_says_so():
    memory = services_on_their_own(count=4)
    await settle(memory)
    roll_out(memory)
    steps = await move(memory, planned((1, "chat"), (1, "chat"), (1, "chat"), (1, "code"), today=5))
    assert (steps[-1]["chat"][3], steps[-1]["code"][3]) == (3, 1)
    assert memory.objects["LLMService", "chat"]["status"]["desiredReplicas"] == 3
    update(memory, raw_member("chat", replicas=0))
    await settle(memory)
    assert places(memory)["chat"][3] == 0


async def test_services_are_as_their_specs_say_once_the_pool_places_them_no_more():
    memory = services_on_their_own()
    await settle(memory)
    roll_out(memory)
    await move(memory, planned((1, "chat", "code")))
    raw = planned_pool("chat", "code")
    update(memory, raw, "GPUPool")
    await settle(memory)
    assert places(memory) == OWN
    assert "placement" not in memory.objects["GPUPool", "shared"]["status"]


async def test_what_a_user_changes_meanwhile_is_carried_out_where_the_service_is():
    memory = services_on_their_own()
    await settle(memory)
    roll_out(memory)
    await settle(memory, planned((1, "chat", "code")))  # chat moves, code waits
    update(memory, raw_member("code", env=[{"name": "A", "value": "1"}]))
    await settle(memory)
    assert places(memory)["code"] == OWN["code"]
    assert {"name": "A", "value": "1"} in engine_of(memory, "code")["env"]


async def test_a_paused_pool_takes_up_no_plan():
    memory = services_on_their_own()
    memory.objects["GPUPool", "shared"]["metadata"]["annotations"] = {"headrace.dev/paused": "true"}
    await settle(memory, planned((1, "chat", "code")))
    assert "placement" not in memory.objects["GPUPool", "shared"]["status"]


async def test_whatever_call_fails_while_services_move_the_end_is_the_same():
    async def moved(memory):
        await settle(memory)
        roll_out(memory)
        await move(memory, planned((1, "chat", "code")))
        return places(memory)

    whole = services_on_their_own()
    end = await moved(whole)
    for number in range(1, whole.calls + 1, 7):
        memory = services_on_their_own()
        memory.fail(number, "before" if number % 2 else "after")
        assert await moved(memory) == end
