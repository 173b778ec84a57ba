"""Members of a group share one claim, if they ask for the same and say what they take."""

import pytest
from op_devices import CLASS, member
from op_pools import pool
from op_world import body

from headrace_operator.api import parse_service
from headrace_operator.decide.group_devices import check_memory, claim_of_group, suits
from headrace_operator.decide.turn_groups import Membership
from headrace_operator.errors import RefusedError

POOL = pool(small=["chat", "code"])
PLACE = Membership(POOL, POOL.groups[0])
MEMBERS = [member("chat"), member("code")]


def refused(*members):
    with pytest.raises(RefusedError) as error:
        claim_of_group(PLACE, members)
    return error.value.reason, str(error.value)


def test_members_share_the_devices_of_the_one_that_needs_most():
    claim = claim_of_group(PLACE, [member("chat"), member("code", tensorParallelSize=2)])
    assert claim["kind"] == "ResourceClaim"
    [request] = claim["spec"]["devices"]["requests"]
    assert (request["exactly"]["deviceClassName"], request["exactly"]["count"]) == (CLASS, 2)
    [owner] = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("GPUPool", "shared")


def test_other_devices_are_another_claim_and_the_same_are_the_same():
    one = claim_of_group(PLACE, [member("chat"), member("code")])["metadata"]["name"]
    two = claim_of_group(PLACE, [member("chat", tensorParallelSize=2), member("code")])["metadata"]["name"]
    assert one.startswith("shared-small-gpu-")
    assert one != two
    assert claim_of_group(PLACE, [member("chat", 20), member("code", 70)])["metadata"]["name"] == one


def test_another_claim_takes_the_place_of_one_that_is_deleted_or_lost_and_stays():
    def made(*live, lost=()):
        return {**claim_of_group(PLACE, MEMBERS, live, lost)["metadata"], "creationTimestamp": f"{len(live)}"}

    first = made()
    live = {"metadata": {**first, "uid": "1"}}
    deleted = {"metadata": {**live["metadata"], "deletionTimestamp": "2026-11-30T12:00:00Z"}}
    assert made(live)["name"] == first["name"]
    second = made(deleted)
    assert second["name"] == made(live, lost={first["name"]})["name"] != first["name"]
    there = {"metadata": {**second, "uid": "2"}}
    for others in ([deleted], [live], []):
        assert made(*others, there)["name"] == second["name"]
    foreign = {"metadata": {**live["metadata"], "ownerReferences": []}}
    assert made(foreign)["name"] != first["name"], "of a pool of that name that is gone"


def test_members_without_claims_and_a_group_without_members_share_nothing():
    assert claim_of_group(PLACE, [parse_service(body("chat")), parse_service(body("code"))]) is None
    assert claim_of_group(PLACE, []) is None


@pytest.mark.parametrize("other", [member("code", device_class="other"), parse_service(body("code"))])
def test_members_that_ask_for_different_devices_are_refused(other):
    reason, message = refused(member("chat"), other)
    assert reason == "MembersDiffer"
    assert message.startswith(
        "group small of GPUPool shared: spec.accelerator.dra of code is not that of chat"
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            member("code", None),
            "code may take the whole GPU: set its spec.engine.gpuMemoryUtil",
        ),
        (member("code", 40, kv_bytes=False), "give spec.engine.args --kv-cache-memory-bytes=BYTES"),
        (member("code", 61), "its members take 101 % of a GPU's memory (chat 1 x 40 %, code 1 x 61 %)"),
        (member("code", 40, replicas=2), "120 %"),
        (member("code", 61, replicas=0), "101 %"),
    ],
)
def test_members_that_have_no_room_together_are_refused(wrong, words):
    reason, message = refused(member("chat"), wrong)
    assert reason == "MemoryOvercommitted"
    assert words in message


def test_what_fills_the_memory_exactly_has_room():
    check_memory(PLACE, [member("chat"), member("code", 30, replicas=2)])


def test_a_claim_suits_who_asks_for_its_devices():
    claim = claim_of_group(PLACE, [member("chat")])
    assert suits(claim, member("code", tensorParallelSize=2))
    assert not suits(claim, member("code", device_class="other"))
    assert not suits(claim, parse_service(body("code")))
    assert not suits({"spec": {}}, member("code"))
