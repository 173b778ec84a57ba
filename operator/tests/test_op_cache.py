"""The cache: newest wins, deletions of an old incarnation do not hide a new one."""

from random import Random

import pytest
from op_world import body, pod

from headrace_operator.api import Key, key_of, served_name_of
from headrace_operator.kube.cache import Cache
from headrace_operator.names import SERVICE_LABEL

KEY = Key("llm", "chat")


def version(raw, number, **metadata):
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(number), **metadata}}


def test_objects_are_found_under_their_service():
    cache = Cache()
    assert cache.put(body()) == [KEY]
    assert cache.put(pod("a")) == [KEY]
    assert cache.service(KEY)["kind"] == "LLMService"
    assert [item["metadata"]["name"] for item in cache.pods(KEY)] == ["a"]
    assert cache.owned(KEY) == []
    assert cache.objects_of_kind("LLMService") == [cache.service(KEY)]
    assert cache.objects_of_kind("Pod") == cache.pods(KEY)


def test_nobodys_object_is_not_kept():
    cache = Cache()
    stray = {"kind": "Pod", "metadata": {"name": "x", "namespace": "llm", "uid": "x"}}
    assert cache.put(stray) == []
    assert cache.objects_of_kind("Pod") == []


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


def test_the_answer_to_a_status_that_shows_another_change_is_not_taken_for_known():
    cache, told = Cache(), {"replicas": 1}
    cache.put(version(body(), 10))
    cache.put_status(version(body(), 11) | {"status": told})
    assert cache.service(KEY)["status"] == told
    assert cache.has_seen(version(body(), 11))
    changed = version(body(replicas=5), 13)
    cache.put_status(changed)
    assert not cache.has_seen(version(body(replicas=5), 12))
    assert not cache.has_seen(changed)


def test_field_managers_are_not_kept():
    cache = Cache()
    cache.put(version(body(), 1, managedFields=[{"manager": "x"}]))
    assert "managedFields" not in cache.service(KEY)["metadata"]


def test_of_a_pods_spec_only_what_is_read_is_kept():
    cache = Cache()
    engine = {"name": "engine", "image": "vllm", "env": [{"name": "A"}], "resources": {}}
    spec = {"volumes": [{"name": "model"}], "containers": [engine], "initContainers": [{"name": "sidecar"}]}
    cache.put({**pod("a"), "spec": spec})
    kept = {"volumes": spec["volumes"], "containers": [{"name": "engine", "env": [{"name": "A"}]}]}
    assert cache.pods(KEY)[0]["spec"] == kept


def test_the_same_version_is_not_stored_again():
    cache = Cache()
    cache.put(version(body(), 1))
    kept = cache.service(KEY)
    cache.put(version(body(), 1))
    assert cache.service(KEY) is kept


def test_what_was_deleted_is_not_brought_back_by_what_comes_late():
    cache = Cache()
    labels = pod("a")["metadata"]["labels"]
    cache.put(version(pod("a"), 10, labels=labels))
    cache.drop(version(pod("a"), 12, labels=labels))
    cache.put(version(pod("a"), 11, labels=labels))
    assert cache.pods(KEY) == []
    cache.put(version(pod("a"), 13, labels=labels))  # it had only lost the labels for a while
    assert len(cache.pods(KEY)) == 1


def test_a_services_name_finds_it_as_long_as_it_has_it():
    cache, dice = Cache(), Random(1)
    keys = [Key(namespace, name) for namespace in "ab" for name in "xyz"]
    wanted = ["m", "n", "a/x", "x"]
    for number in range(1, 300):
        key = dice.choice(keys)
        metadata = {"namespace": key.namespace, "name": key.name, "uid": f"{key}-{number // 40}"}
        service = {"kind": "LLMService", "metadata": {**metadata, "resourceVersion": str(number)}}
        service["spec"] = {"model": {"servedName": dice.choice(wanted)}}
        (cache.drop if dice.random() < 0.3 else cache.put)(service)
        for name in (*wanted, "b/z"):
            services_asking_for = [key_of(each) for each in cache.services_asking_for(name)]
            assert len(services_asking_for) == len(set(services_asking_for))
            assert set(services_asking_for) == {
                key_of(each)
                for each in cache.services()
                if served_name_of(each) == name or str(key_of(each)) == name
            }


def relabelled(raw, number, labels):
    return version(raw, number, labels=labels)


@pytest.mark.parametrize("labels", [{}, {SERVICE_LABEL: "other"}], ids=["no label", "another's"])
def test_what_lost_our_label_concerns_the_service_that_it_was_of(labels):
    """Its watch goes on: only the label that all objects of ours share selects."""
    cache = Cache()
    cache.put(version(pod("a"), 10))
    holder = [Key("llm", service) for service in labels.values()]
    assert cache.put(relabelled(pod("a"), 11, labels)) == [*holder, KEY]
    assert cache.pods(KEY) == []
    assert cache.put(version(pod("a"), 10)) == [KEY]  # a late answer
    assert cache.pods(KEY) == []
    assert cache.put(version(pod("a"), 12)) == [KEY, *holder]
    assert len(cache.pods(KEY)) == 1
    assert [cache.pods(other) for other in holder] == [[] for _ in holder]


def test_an_older_view_of_a_label_changes_nothing():
    cache = Cache()
    cache.put(version(pod("a"), 10))
    assert cache.put(relabelled(pod("a"), 9, {})) == []
    assert len(cache.pods(KEY)) == 1


def test_no_belonging_is_remembered_after_its_end():
    """Nothing but the numbers of the latest deletions, which are bounded, grows."""
    dice, cache = Random(1), Cache()
    there = {}
    for number in range(2000):
        name = dice.choice("abc")
        if name in there and dice.random() < 0.5:
            cache.drop(version(there.pop(name), number))
        else:
            labels = dice.choice([{}, {SERVICE_LABEL: "chat"}, {SERVICE_LABEL: "other"}])
            uid = there[name]["metadata"]["uid"] if name in there else f"{name}{number}"
            there[name] = version(pod(name), number, uid=uid, labels=labels)
            cache.put(there[name])
        kept = {item["metadata"]["uid"] for key in (KEY, Key("llm", "other")) for item in cache.pods(key)}
        assert kept == set(cache._holders)
        assert kept == {raw["metadata"]["uid"] for raw in there.values() if raw["metadata"]["labels"]}
