"""A quarrel with another writer stays slow, and nothing else waits for it."""

from headrace_operator.api import Key
from headrace_operator.decide.plan import Apply, Delete
from headrace_operator.run.write_throttle import WriteThrottle

KEY = Key("llm", "chat")


def apply(name, **content):
    return Apply({"kind": "ConfigMap", "metadata": {"name": name}, **content}, creates=False)


def test_the_same_content_waits_and_other_content_does_not():
    throttle = WriteThrottle()
    first, other, delete = apply("a"), apply("b"), Delete("Service", "chat", "uid")
    assert throttle.split_due_actions(KEY, [first, delete], 100.0) == ([first, delete], None)
    throttle.record_actions(KEY, [first, delete], 100.0)
    assert throttle.split_due_actions(KEY, [first, other, delete], 100.5) == ([other, delete], 1.5)
    assert throttle.split_due_actions(KEY, [apply("a", data={})], 100.5) == ([apply("a", data={})], None)
    assert throttle.split_due_actions(KEY, [first], 102.0) == ([first], None)
    assert throttle.split_due_actions(Key("llm", "another"), [first], 100.5) == ([first], None)


def test_what_was_deleted_on_purpose_comes_back_at_once():
    throttle = WriteThrottle()
    template, remove = apply("gpu"), Delete("ConfigMap", "gpu", "uid")
    throttle.record_actions(KEY, [template], 100.0)
    throttle.record_actions(KEY, [remove], 100.5)
    assert throttle.split_due_actions(KEY, [template], 101.0) == ([template], None)


def test_an_object_that_cannot_be_changed_is_not_removed_before_it_may_be_written():
    throttle = WriteThrottle()
    anew = [Delete("ConfigMap", "gpu", "uid"), apply("gpu")]
    assert throttle.split_due_actions(KEY, anew, 100.0) == (anew, None)
    throttle.record_actions(KEY, anew, 100.0)
    assert throttle.split_due_actions(KEY, anew, 100.5) == ([], 1.5)
    assert throttle.split_due_actions(KEY, anew, 102.0) == (anew, None)


def test_a_service_that_is_gone_is_forgotten():
    throttle = WriteThrottle()
    throttle.record_write(KEY, "status", "hash", 0.0)
    assert throttle.seconds_until_allowed(KEY, "status", "hash", 0.0) == 2.0
    throttle.forget(KEY)
    assert throttle.seconds_until_allowed(KEY, "status", "hash", 0.0) == 0.0
