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


def test_a_service_that_is_gone_is_forgotten():
    pace = Pace()
    pace.wrote(KEY, "status", "hash", 0.0)
    assert pace.wait(KEY, "status", "hash", 0.0) == 2.0
    pace.forget(KEY)
    assert pace.wait(KEY, "status", "hash", 0.0) == 0.0
