"""Which pods count as a service's own: those whose chain of owners the API server vouches for."""

import pytest
from op_memory import operator, with_service
from op_world import MAKER, pod, report

from headrace_operator.api import Key
from headrace_operator.decide.observation import observe
from headrace_operator.errors import ApiError
from headrace_operator.kube.ownership import Ownership

KEY = Key("llm", "chat")
DEPLOYMENT = {"kind": "Deployment", "metadata": {"name": "chat", "uid": "deployment"}}


def replica_set(uid, made_for="deployment", controller=True):
    owners = [{"kind": "Deployment", "name": "chat", "uid": made_for, "controller": controller}]
    return {"kind": "ReplicaSet", "metadata": {"uid": uid, "ownerReferences": owners}}


def made(pod_name, **maker):
    """A pod that says that it was made by `maker`."""
    return {
        "metadata": {"name": pod_name, "ownerReferences": [{**MAKER, "name": "rs", "uid": "rs", **maker}]}
    }


class Api:
    """Reads of ReplicaSets by name, counted."""

    def __init__(self, **found):
        self.found, self.asked = found, []

    async def read(self, kind, namespace, name):
        assert (kind, namespace) == ("ReplicaSet", "llm")
        self.asked.append(name)
        if isinstance(found := self.found.get(name), Exception):
            raise found
        return found


async def own(api, *pods, deployment=DEPLOYMENT, ownership=None, now=0.0):
    ownership = ownership or Ownership(api)
    await ownership.learn(KEY, deployment, pods, now)
    return [each["metadata"]["name"] for each in ownership.own_pods(KEY, pods)]


async def test_a_pod_of_the_deployments_replica_set_is_its_own_and_looked_up_once():
    api, pods = Api(rs=replica_set("rs")), [made("a"), made("b")]
    ownership = Ownership(api)
    for _ in range(3):
        assert await own(api, *pods, ownership=ownership) == ["a", "b"]
    assert api.asked == ["rs"]


FORGED = {
    "no owner": {"metadata": {"name": "x"}},
    "an owner that does not control": made("x", controller=False),
    "an owner of another kind": made("x", kind="Job"),
    "the Deployment itself": made("x", kind="Deployment", name="chat", uid="deployment"),
    "another object's uid": made("x", uid="guessed"),
    "a ReplicaSet that does not exist": made("x", name="none", uid="none"),
    "a ReplicaSet of nobody": made("x", name="free", uid="free"),
    "a ReplicaSet of another Deployment": made("x", name="other", uid="other"),
    "a ReplicaSet that the Deployment does not control": made("x", name="half", uid="half"),
}


@pytest.mark.parametrize("kind", FORGED)
async def test_what_only_says_so_is_not(kind):
    free = {"kind": "ReplicaSet", "metadata": {"uid": "free"}}
    api = Api(rs=replica_set("rs"), free=free, other=replica_set("other", "another"))
    api.found["half"] = replica_set("half", controller=False)
    assert await own(api, FORGED[kind], made("a")) == ["a"]


async def test_without_a_deployment_nothing_new_is_its_own_and_what_was_stays():
    api, ownership = Api(rs=replica_set("rs"), new=replica_set("new")), None
    assert await own(api, made("a"), deployment=None) == []
    ownership = Ownership(api)
    assert await own(api, made("a"), ownership=ownership) == ["a"]
    pods = made("a"), made("b", name="new", uid="new")
    assert await own(api, *pods, deployment=None, ownership=ownership) == ["a"]


async def test_a_replica_set_that_is_adopted_later_is_found():
    api = Api(rs={"kind": "ReplicaSet", "metadata": {"uid": "rs"}})
    ownership = Ownership(api)
    assert await own(api, made("a"), ownership=ownership) == []
    api.found["rs"] = replica_set("rs")
    assert await own(api, made("a"), ownership=ownership, now=30.0) == []
    assert await own(api, made("a"), ownership=ownership, now=60.0) == ["a"]
    assert api.asked == ["rs", "rs"]


async def test_many_forged_names_delay_and_do_not_flood():
    forged = [made(f"x{n}", name=f"x{n}", uid=f"x{n}") for n in range(20)]
    api, pods = Api(rs=replica_set("rs")), [*forged, made("a")]
    ownership, asked = Ownership(api), []
    for now in range(4):
        again = await ownership.learn(KEY, DEPLOYMENT, pods, float(now))
        asked.append(len(api.asked))
    assert asked == [8, 16, 21, 21]
    assert again == 60.0
    assert [each["metadata"]["name"] for each in ownership.own_pods(KEY, pods)] == ["a"]


async def test_an_outage_forgets_nothing():
    api = Api(rs=replica_set("rs"), new=ApiError(0, "away"))
    ownership = Ownership(api)
    await ownership.learn(KEY, DEPLOYMENT, [made("a")], 0.0)
    with pytest.raises(ApiError):
        await ownership.learn(KEY, DEPLOYMENT, [made("a"), made("b", name="new", uid="new")], 1.0)
    assert list(ownership.own_pods(KEY, [made("a")])) == [made("a")]


async def test_a_labelled_pod_of_somebody_else_is_not_counted_asked_or_annotated():
    memory = with_service()
    reconciler = operator(memory)
    await reconciler.reconcile(KEY)
    stranger = pod("stranger")
    stranger["metadata"]["ownerReferences"] = []
    for each in (pod("own"), stranger):
        memory.store({**each, "metadata": {**each["metadata"], "resourceVersion": "1"}})
        reconciler.cache.put(memory.objects["Pod", each["metadata"]["name"]])
    reconciler.sidecars.said = {name: report("old") for name in ("own", "stranger")}
    followed = []
    reconciler.sidecars.follow = lambda _key, pods, _wanted: followed.append([each.name for each in pods])
    memory.writes.clear()
    await reconciler.reconcile(KEY)
    assert followed[-1] == ["own"]
    assert ("write", "Pod", "own") in memory.writes
    assert ("write", "Pod", "stranger") not in memory.writes
    assert memory.objects["LLMService", "chat"]["status"]["replicas"] == 1


def test_a_pod_with_its_nodes_address_is_not_asked():
    raw = pod("a")
    assert observe([], [raw], {}).pods[0].ip
    raw["spec"]["hostNetwork"] = True
    assert observe([], [raw], {}).pods[0].ip == ""
