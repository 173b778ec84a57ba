"""Random lives of a service: changes of its spec, edits by others, deaths and blindness of the operator.

The same seed makes the same choices.
"""

import asyncio
import contextlib
import os
import random
from dataclasses import dataclass, field
from unittest import mock

import op_release
from op_desk import Desk, KilledError, accepted
from op_kube import llmservice, ok

from headrace_operator.kube import client as cluster

_STEPS = 7
_GPU = {"type": "GPU"}
_CLAIMED = {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}
_HOST = {"volumes": [{"name": "host", "hostPath": {"path": "/etc"}}]}
# Each block's possible values; None leaves it out. Some are refused, by the operator alone.
_BLOCKS = {
    "replicas": [None, 0, 1, 2],
    "accelerator": [{"type": "CPU"}, _GPU, _CLAIMED, _CLAIMED],
    "engine": [
        {"image": "example/vllm:1"},
        {"image": "example/vllm:2", "args": ["--enforce-eager"]},
        {"image": "example/vllm:1", "tensorParallelSize": 2},
        {"image": "example/vllm:1", "env": [{"name": "A", "value": "1"}], "maxModelLen": 4096},
    ],
    "scheduling": [
        None,
        {"policy": "LARRY"},
        {"policy": "FCFS", "larry": {"alpha": 3}},
        {"stepBudget": {"mode": "Fixed", "tokens": 512}},
        {"slice": {"tokens": 512, "patience": "5s"}},
    ],
    "slo": [None, {"ttft": "2s", "tpot": "100ms"}, {"e2e": "1m"}],
    "routing": [
        None,
        {"balancer": "LeastRequest"},
        {"maxQueue": "20s"},
        {"rebalance": "Auto"},
        {"limits": {"requestsPerMinute": 9}},
    ],
    "disruption": [None, {"maxUnavailable": 1, "maxSurge": 0}, {"drainTimeout": "5s"}],
    "podTemplate": [
        None,
        {"nodeSelector": {"pool": "a"}},
        {"metadata": {"labels": {"team": "x"}}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"volumes": [{"name": "extra", "persistentVolumeClaim": {"claimName": "models"}}]},
        _HOST,
    ],
}
_OWNED = {"deployments": "", "services": "", "configmaps": "-policy", "networkpolicies": ""}


def seeds():
    """`HEADRACE_SEEDS` of them (12 unless told) from `HEADRACE_FIRST_SEED` on."""
    first = int(os.environ.get("HEADRACE_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("HEADRACE_SEEDS", "12")))


@dataclass
class Life:
    """What came of one sequence."""

    seed: int
    story: list = field(default_factory=list)
    end: dict = field(default_factory=dict)
    fresh: dict = field(default_factory=dict)
    accepted: tuple = ()
    writes_at_fixpoint: list = field(default_factory=list)
    wrong_deletions: list = field(default_factory=list)


def live(crd, kube, seed):
    """Live it through, then start anew with the last spec alone."""
    return asyncio.run(_live(crd, kube, seed))


@contextlib.asynccontextmanager
async def _connected(config):
    with mock.patch.dict(os.environ, {"KUBECONFIG": str(config)}):
        os.environ.pop("KUBERNETES_SERVICE_HOST", None)
        async with cluster.connect() as api:
            yield api


async def _live(crd, kube, seed):
    life = Life(seed)
    async with _connected(crd.kubeconfig) as api, _connected(op_release.kubeconfig(crd)) as own:
        desk = Desk(api, own, kube.namespace, f"s{seed}")
        player = _Player(desk, kube, random.Random(seed), life.story)
        await desk.start()
        for _ in range(_STEPS):
            await player.step()
        player.spec["podTemplate"] = (
            None if player.spec["podTemplate"] == _HOST else player.spec["podTemplate"]
        )
        player.paused = False
        player.apply()
        while True:
            await desk.resync()
            life.end, life.accepted = await desk.snapshot(), accepted(await desk.body())
            settled, before = desk.seen(), len(desk.wire.writes)
            await desk.start()
            still = desk.seen() == settled  # a slow controller of the cluster may have counted pods meanwhile
            await desk.work()
            if still:
                break
        life.writes_at_fixpoint = desk.wire.writes[before:]
        life.wrong_deletions = desk.wire.wrong
        await desk.clear()
        player.apply()
        await desk.settle()
        life.fresh = await desk.snapshot()
        await desk.clear()
    return life


class _Player:
    """User, other writers, network and fate."""

    def __init__(self, desk, kube, dice, story):
        self.desk, self.kube, self.dice, self.story = desk, kube, dice, story
        self.spec = {block: values[0] for block, values in _BLOCKS.items()}
        self.paused = False
        self.seen = []
        self.apply()

    def apply(self):
        body = llmservice(self.desk.key.name, **{k: v for k, v in self.spec.items() if v is not None})
        body["spec"] = {k: v for k, v in body["spec"].items() if self.spec.get(k, v) is not None}
        body["spec"]["model"] = {"source": "hf://a/b", "servedName": f"m-{self.desk.key}"}
        if self.paused:
            body["metadata"]["annotations"] = {"headrace.dev/paused": "true"}
        ok(self.kube.apply("llmservices", body))

    async def step(self):
        act = self.dice.choices(
            [self._change, self._toggle_pause, self._recreate, self._edit, self._remove],
            [6, 1, 1, 2, 1],
        )[0]
        await act()
        for _ in range(self.dice.randint(0, 2)):
            await self.dice.choices([self._look, self._glance, self._die], [3, 3, 2])[0]()

    async def _change(self):
        for block in self.dice.sample(sorted(_BLOCKS), self.dice.randint(1, 3)):
            self.spec[block] = self.dice.choice(_BLOCKS[block])
            self.story.append(f"{block} = {self.spec[block]}")
        self.apply()

    async def _toggle_pause(self):
        self.paused = not self.paused
        self.story.append(f"paused = {self.paused}")
        self.apply()

    async def _recreate(self):
        self.story.append("deleted and made again")
        ok(self.kube.delete("llmservices", self.desk.key.name))
        self.apply()

    async def _edit(self):
        self.story.append("someone scales the Deployment and edits the policy")
        name = self.desk.key.name
        for plural, other, patch in (
            ("deployments", name, {"spec": {"replicas": 5}}),
            ("configmaps", f"{name}-policy", {"data": {"policy.json": "{}"}}),
        ):
            assert self.kube.patch(plural, other, patch).status_code in {200, 404}

    async def _remove(self):
        plural = self.dice.choice(sorted(_OWNED))
        self.story.append(f"someone deletes one of {plural}")
        answer = self.kube.delete(plural, self.desk.key.name + _OWNED[plural])
        assert answer.status_code in {200, 202, 404}

    async def _look(self):
        self.story.append("reconcile, all seen")
        await self.desk.catch_up()
        await self.desk.work()

    async def _glance(self):
        self.story.append("reconcile, some events lost, doubled or late")
        cache, there = self.desk.operator.cache, set()
        async for body in self.desk.everything():
            there.add(body["metadata"]["uid"])
            self.seen.append(body)
            for _ in range(self.dice.choice([0, 0, 1, 2])):
                cache.put(body)
        for body in self.desk.remembered():
            if body["metadata"]["uid"] not in there and self.dice.random() < 0.5:
                cache.drop(body)
        for body in self.dice.sample(self.seen, min(3, len(self.seen))):
            cache.put(body)
        await self.desk.work()

    async def _die(self):
        self.desk.wire.dies_at = len(self.desk.wire.calls) + self.dice.randint(1, 20)
        self.story.append(f"reconcile, dies at call {self.desk.wire.dies_at}")
        try:
            await self.desk.catch_up()
            await self.desk.work()
        except KilledError:
            pass
        self.desk.wire.dies_at = None
        await self.desk.start()
