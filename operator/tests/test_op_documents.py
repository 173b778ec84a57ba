"""What engines are given, what they have of it, and what there is to give."""

from dataclasses import replace

import pytest
from op_world import applied, body, hash_of, observed, report

from headrace_engine.contracts import dumps
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator.api import Key, parse_service
from headrace_operator.decide.documents import Documents, documents_in_force, wanted_documents

KEY = Key("llm", "chat")
GROUP = TurnGroup(host="10.0.3.7", port=9500, token="c0ffee00" * 4)


@pytest.mark.parametrize("group", [None, GROUP])
def test_what_is_written_is_what_is_wanted(group):
    objects = applied(body())
    if group:
        [config_map] = [each for each in objects if each["metadata"]["name"] == "chat-policy"]
        config_map["data"]["turn-group.json"] = dumps(group)
    in_force = documents_in_force(KEY, observed(body(), objects=objects))
    assert in_force == wanted_documents(parse_service(body()), group)
    assert in_force.policy == hash_of(body())
    assert bool(in_force.turn_group) == bool(group)


def test_another_token_is_another_document():
    service = parse_service(body())
    assert wanted_documents(service, GROUP) != wanted_documents(service, replace(GROUP, token="00" * 16))


def test_without_a_policy_nothing_is_in_force():
    assert documents_in_force(KEY, observed(body(), objects=[])) is None


@pytest.mark.parametrize(
    ("engine", "answers"),
    [
        (report("p", turn_group="g"), True),
        (report("", rejected_hash="p", turn_group="g"), True),
        (report("p", turn_group=""), False),
        (report("p", turn_group="h"), False),
        (report("q", turn_group="g"), False),
        (report("p", turn_group=None), True),  # too old to say
    ],
)
def test_an_engine_has_answered_once_it_has_both(engine, answers):
    assert Documents("p", "g").are_answered_by(engine.status) is answers
