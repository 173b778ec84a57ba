"""The cache: newest wins, deletions of an old incarnation do not hide a new one."""

from op_world import body, pod

from headrace_operator.api import Key
from headrace_operator.cache import Cache

KEY = Key("llm", "chat")


def version(raw, number, **metadata):
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(number), **metadata}}


def test_objects_are_found_under_their_service():
    cache = Cache()
    assert cache.put(body()) == KEY
    assert cache.put(pod("a")) == KEY
    assert cache.service(KEY)["kind"] == "LLMService"
    assert [item["metadata"]["name"] for item in cache.pods(KEY)] == ["a"]
    assert cache.owned(KEY) == []
    assert len(cache.everything()) == 2


def test_nobodys_object_is_not_kept():
    cache = Cache()
    stray = {"kind": "Pod", "metadata": {"name": "x", "namespace": "llm", "uid": "x"}}
    assert cache.put(stray) is None
    assert cache.everything() == []


def test_an_older_version_never_replaces_a_newer_one():
    cache = Cache()
    cache.put(version(pod("a"), 10, labels=pod("a")["metadata"]["labels"]))
    cache.put(version(pod("a", ready=False), 9))
    assert cache.pods(KEY)[0]["metadata"]["resourceVersion"] == "10"


def test_a_late_deletion_of_the_old_does_not_hide_the_new():
    cache = Cache()
    cache.put(version(body(), 20, uid="new"))
    cache.drop(version(body(), 15, uid="old"))
    assert cache.service(KEY)["metadata"]["uid"] == "new"
    cache.drop(version(body(), 21, uid="new"))
    assert cache.service(KEY) is None


def test_field_managers_are_not_kept():
    cache = Cache()
    cache.put(version(body(), 1, managedFields=[{"manager": "x"}]))
    assert "managedFields" not in cache.service(KEY)["metadata"]


def test_what_was_deleted_is_not_brought_back_by_what_comes_late():
    cache = Cache()
    labels = pod("a")["metadata"]["labels"]
    cache.put(version(pod("a"), 10, labels=labels))
    cache.drop(version(pod("a"), 12, labels=labels))
    cache.put(version(pod("a"), 11, labels=labels))
    assert cache.pods(KEY) == []
    cache.put(version(pod("a"), 13, labels=labels))  # it had only lost the labels for a while
    assert len(cache.pods(KEY)) == 1
