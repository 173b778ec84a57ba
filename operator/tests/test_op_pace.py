"""A quarrel with another writer stays slow, and nothing else waits for it."""

from headrace_operator.api import Key
from headrace_operator.pace import Pace
from headrace_operator.plan import Apply, Delete

KEY = Key("llm", "chat")


def apply(name, **content):
    return Apply({"kind": "ConfigMap", "metadata": {"name": name}, **content}, creates=False)


def test_the_same_content_waits_and_other_content_does_not():
    pace = Pace()
    first, other, delete = apply("a"), apply("b"), Delete("Service", "chat", "uid")
    assert pace.split(KEY, [first, delete], 100.0) == ([first, delete], None)
    pace.did(KEY, [first, delete], 100.0)
    assert pace.split(KEY, [first, other, delete], 100.5) == ([other, delete], 1.5)
    assert pace.split(KEY, [apply("a", data={})], 100.5) == ([apply("a", data={})], None)
    assert pace.split(KEY, [first], 102.0) == ([first], None)
    assert pace.split(Key("llm", "another"), [first], 100.5) == ([first], None)


def test_what_was_deleted_on_purpose_comes_back_at_once():
    pace = Pace()
    template, remove = apply("gpu"), Delete("ConfigMap", "gpu", "uid")
    pace.did(KEY, [template], 100.0)
    pace.did(KEY, [remove], 100.5)
    assert pace.split(KEY, [template], 101.0) == ([template], None)


def test_an_object_that_cannot_be_changed_is_not_removed_before_it_may_be_written():
    pace = Pace()
    anew = [Delete("ConfigMap", "gpu", "uid"), apply("gpu")]
    assert pace.split(KEY, anew, 100.0) == (anew, None)
    pace.did(KEY, anew, 100.0)
    assert pace.split(KEY, anew, 100.5) == ([], 1.5)
    assert pace.split(KEY, anew, 102.0) == (anew, None)


def test_a_service_that_is_gone_is_forgotten():
    pace = Pace()
    pace.wrote(KEY, "status", "hash", 0.0)
    assert pace.wait(KEY, "status", "hash", 0.0) == 2.0
    pace.forget(KEY)
    assert pace.wait(KEY, "status", "hash", 0.0) == 0.0
