"""What the watches missed is found: deletions, other labels, and an API server that went back in time."""

import copy

import pytest
from op_golden import SETTINGS
from op_memory import Memory
from op_world import body, pod

from headrace_operator import names
from headrace_operator.api import Key
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.resync import fill_cache, resync
from headrace_operator.run.workqueue import WorkQueue

KEY = Key("llm", "chat")


class Lists(Memory):
    """Memory that can be listed."""

    async def list_objects(self, target, namespace, selector, *, metadata_only=False):
        for (kind, _), item in list(self.objects.items()):
            if kind == target.kind:
                yield copy.deepcopy({"kind": kind, "metadata": item["metadata"]} if metadata_only else item)


class World:
    """A cluster, and an operator's cache that was filled from it."""

    def __init__(self, *items):
        self.cluster, self.cache, self.queue = Lists(), Cache(), WorkQueue(lambda: 0.0)
        for item in items:
            self.cluster.store(item)

    async def resync(self):
        await resync(self.cache, self.cluster, self.queue.add, SETTINGS)
        keys = [await self.queue.next_key() for _ in range(self.queue.depth)]
        for key in keys:
            self.queue.finish_key(key)
        return {key.name for key in keys}

    def change(self, kind, name, change):
        item = copy.deepcopy(self.cluster.objects[kind, name])
        change(item)
        self.cluster.store(item)


async def filled(*items):
    world = World(*items)
    await fill_cache(world.cache, world.cluster, SETTINGS)
    return world


async def test_what_is_as_remembered_wakes_nobody():
    world = await filled(body(), pod("a"))
    assert await world.resync() == set()


async def test_changes_and_deletions_that_no_watch_told_of_are_found():
    world = await filled(body(), pod("a"), pod("b"))
    del world.cluster.objects["Pod", "a"]
    world.change("LLMService", "chat", lambda item: item["spec"].update(replicas=7))
    assert await world.resync() == {"chat"}
    assert world.cache.service(KEY)["spec"]["replicas"] == 7
    assert [item["metadata"]["name"] for item in world.cache.pods(KEY)] == ["b"]


async def test_a_pod_that_was_given_to_another_service_leaves_the_first():
    world = await filled(body(), pod("a"))
    world.change("Pod", "a", lambda item: item["metadata"]["labels"].update({names.SERVICE_LABEL: "apart"}))
    assert await world.resync() == {"chat", "apart"}
    assert world.cache.pods(KEY) == []
    assert len(world.cache.pods(Key("llm", "apart"))) == 1


@pytest.mark.parametrize("kind", ["LLMService", "Pod"])
async def test_a_restored_etcd_is_believed(kind):
    world = await filled(body(), pod("a"))
    old = copy.deepcopy(world.cluster.objects)
    name = "chat" if kind == "LLMService" else "a"
    world.change(kind, name, lambda item: item["metadata"].update(annotations={"x": "new"}))
    assert await world.resync() == {"chat"}
    world.cluster.objects = old
    assert await world.resync() == {"chat"}
    known = world.cache.service(KEY) if kind == "LLMService" else world.cache.pods(KEY)[0]
    assert known["metadata"]["resourceVersion"] == old[kind, name]["metadata"]["resourceVersion"]
    assert names.owner_key_of(known) == KEY
    assert await world.resync() == set()


async def test_who_may_now_have_the_name_of_a_deleted_service_is_looked_at():
    model = {"source": "hf://a/b", "servedName": "m"}
    world = await filled(body("older", model=model), body("younger", model=model))
    del world.cluster.objects["LLMService", "older"]
    assert await world.resync() == {"older", "younger"}
