"""How replicas are replaced: on devices of a group nobody starts on top of those that have its memory."""

import dataclasses

from op_devices import member
from op_golden import SETTINGS
from op_world import pace

from headrace_operator.desired.deployment import deployment
from headrace_operator.desired.history import Rollout
from headrace_operator.desired.inputs import input_blocks, with_blocks

READY = Rollout(load_seconds=40)


def service(claim=None, surge=1, unavailable=0):
    found = member("chat", replicas=2)
    disruption = found.spec.disruption.model_copy(update={"max_surge": surge, "max_unavailable": unavailable})
    spec = found.spec.model_copy(update={"disruption": disruption})
    return dataclasses.replace(found, spec=spec, group_claim=claim)


def test_a_service_of_its_own_is_replaced_as_it_asks():
    assert pace(deployment(service(), SETTINGS, None)) == (1, 0)


def test_members_make_room_before_others_start_in_it():
    assert pace(deployment(service("c"), SETTINGS, None)) == (0, 1)
    assert pace(deployment(service("c", unavailable=2), SETTINGS, None)) == (0, 2)


def test_who_is_moved_where_there_is_room_for_both_is_there_throughout():
    moved = dataclasses.replace(service("c", surge=0, unavailable=1), surges=True)
    assert pace(deployment(moved, SETTINGS, None)) == (1, 0)


def test_who_joins_or_leaves_a_group_or_changes_devices_is_replaced_as_it_asks():
    alone = deployment(service(), SETTINGS, None)
    alone = deployment(service(), SETTINGS, alone, READY)
    joining = deployment(service("c"), SETTINGS, alone)
    assert pace(joining) == (1, 0)
    assert pace(deployment(service("c"), SETTINGS, joining)) == (1, 0), "until all are there"
    joined = deployment(service("c"), SETTINGS, joining, READY)
    assert pace(joined) == (0, 1)
    assert pace(deployment(service("d"), SETTINGS, joined)) == (1, 0)
    assert pace(deployment(service(), SETTINGS, joined)) == (1, 0)


def test_a_claim_is_part_of_what_pods_are_made_from():
    blocks = input_blocks(service("c"))
    assert with_blocks(service(), blocks).group_claim == "c"
    assert with_blocks(service("c"), input_blocks(service())).group_claim is None
    assert blocks != input_blocks(service("d")) != input_blocks(service())
