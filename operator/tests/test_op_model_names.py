"""Model names are claims: exactly one holder each, for as long as it wants, whatever happens when."""

import asyncio
import copy
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_golden import SETTINGS
from op_memory import Memory, operator
from op_world import body

from headrace_operator.api import Key, parse_service
from headrace_operator.decide.accept import check_accepted
from headrace_operator.decide.model_names import ModelNames, find_rivals, served_model_names
from headrace_operator.errors import ApiError, RefusedError
from headrace_operator.kube.cache import Cache


def raw(name, served, day=1, namespace="llm", *, granted=(), generation=1):
    model = {"source": "hf://a/b", "servedName": served}
    made = body(name, namespace, f"2026-01-{day:02}T00:00:00Z", model=model)
    made["metadata"]["generation"] = generation
    return {**made, "status": {"models": list(granted)}}


def route(name, *models, namespace="llm", reserved=()):
    labels = {"headrace.dev/service": name}
    metadata = {"name": name, "namespace": namespace, "uid": f"route-{namespace}-{name}", "labels": labels}
    return {
        "kind": "LLMRoute",
        "metadata": metadata,
        "spec": {"models": list(models), "reserved": list(reserved)},
    }


def claims(*bodies):
    cache = Cache()
    for each in bodies:
        cache.put(each)
    return ModelNames(cache)


def test_a_name_is_whose_it_was_granted_to_and_not_the_older_ones():
    old, young = raw("old", "m", 1), raw("young", "m", 2)
    held = claims(old, young, route("young", "llm/young", "m"))
    held.require_served_name(parse_service(young))
    with pytest.raises(RefusedError, match="'m' belongs to LLMService llm/young") as caught:
        held.require_served_name(parse_service(old))
    assert caught.value.reason == "ModelNameConflict"


def test_a_name_that_waits_for_its_engines_is_granted_too():
    old, young = raw("old", "m", 1), raw("young", "m", 2)
    held = claims(old, young, route("young", "llm/young", "before", reserved=["m"]))
    assert held.find_holder("m", parse_service(old)) == Key("llm", "young")


def test_a_name_stays_while_its_holder_asks_for_another_that_is_not_carried_out():
    holder, new = raw("holder", "other", 1), raw("new", "m", 2)
    held = claims(holder, new, route("holder", "llm/holder", "m"))
    assert held.find_holder("m", parse_service(new)) == Key("llm", "holder")
    let_go = claims(holder, new, route("holder", "llm/holder", "other"))
    assert let_go.find_holder("m", parse_service(new)) == Key("llm", "new")


def test_without_its_route_the_status_says_whose_a_name_is():
    old, young = raw("old", "m", 1), raw("young", "m", 2, granted=["llm/young", "m"])
    assert claims(old, young).find_holder("m", parse_service(old)) == Key("llm", "young")
    told_falsely = claims(old, young, route("young", "llm/young"))
    assert told_falsely.find_holder("m", parse_service(old)) == Key("llm", "old")


def test_of_those_to_whom_nothing_was_granted_the_older_comes_first_and_names_decide_in_one_second():
    old, young = raw("old", "m", 1), raw("young", "m", 2)
    assert claims(old, young).find_holder("m", parse_service(young)) == Key("llm", "old")
    a, b = raw("a", "m", 1), raw("b", "m", 1)
    for order in ([a, b], [b, a]):
        assert {claims(*order).find_holder("m", parse_service(each)) for each in order} == {Key("llm", "a")}


def test_a_services_own_qualified_name_beats_who_had_it():
    squatter, victim = raw("squatter", "llm/victim", 1), raw("victim", "m", 2)
    held = claims(squatter, victim, route("squatter", "llm/squatter", "llm/victim"))
    assert held.find_holder("llm/victim", parse_service(squatter)) == Key("llm", "victim")
    assert held.is_used_elsewhere("llm/victim", parse_service(victim))


def test_a_name_that_one_pass_takes_is_no_others_until_the_first_is_over():
    old, young = raw("old", "m", 1), raw("young", "m", 2)
    held = claims(young)
    assert held.take_name("m", parse_service(young)) is None
    held._cache.put(old)
    assert held.take_name("m", parse_service(old)) == Key("llm", "young")
    held.release_pending(Key("llm", "young"))
    assert held.take_name("m", parse_service(old)) is None


def test_rivals_ask_for_a_name_of_a_service_or_of_a_route():
    bodies = [raw("a", "m"), raw("b", "llm/victim"), raw("c", "kept")]
    asked = []

    def services_asking_for(name):
        asked.append(name)
        return bodies

    victim = raw("victim", "m", granted=["kept"])
    assert {key.name for key in find_rivals(victim, services_asking_for)} == {"a", "b", "c"}
    assert set(asked) == {"m", "llm/victim", "kept"}
    assert {key.name for key in find_rivals(route("victim", "m"), services_asking_for)} == {"a"}


def test_names_at_the_gateway():
    assert served_model_names(parse_service(raw("a", "m"))) == ("llm/a", "m")
    assert served_model_names(parse_service(raw("a", "llm/a"))) == ("llm/a",)


services = st.lists(
    st.builds(
        lambda *parts: raw(*parts[:4], granted=parts[4]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["m", "n", "x/a", "y/b"]),
        st.integers(1, 3),
        st.sampled_from(["x", "y"]),
        st.lists(st.sampled_from(["m", "n", "x/a", "y/b"]), unique=True),
    ),
    unique_by=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]),
    max_size=6,
)


@given(services, st.data())
def test_every_name_has_exactly_one_holder_whoever_asks(group, data):
    routes = [
        route(each["metadata"]["name"], *models, namespace=each["metadata"]["namespace"])
        for each in group
        if (models := data.draw(st.lists(st.sampled_from(["m", "n", "x/a", "y/b"]), unique=True)))
    ]
    held = claims(*group, *routes)
    for name in ("m", "n", "x/a", "y/b"):
        askers = [parse_service(each) for each in group if name in served_model_names(parse_service(each))]
        assert len({held.find_holder(name, each) for each in askers}) <= 1


def test_claimants_parse_once_per_generation(monkeypatch):
    parsed = []
    parse = "headrace_operator.decide.model_names.parse_service"
    monkeypatch.setattr(parse, lambda each: parsed.append(each) or parse_service(each))
    wrong = raw("c", "m")
    wrong["spec"]["slo"] = {"tpot": "0s"}
    mine, held = parse_service(raw("a", "m")), claims(raw("a", "m"), raw("b", "m", 2), wrong)
    for _ in range(3):
        assert held.find_holder("m", mine) == Key("llm", "a")
    assert len(parsed) == 2
    newer = raw("b", "m", 2, generation=2)
    newer["metadata"]["resourceVersion"] = "2"
    held._cache.put(newer)
    held.find_holder("m", mine)
    assert len(parsed) == 3


def test_host_paths_need_the_operators_leave():
    host = body(podTemplate={"volumes": [{"name": "h", "hostPath": {"path": "/etc"}}]})
    with pytest.raises(RefusedError, match=r"spec\.podTemplate\.volumes: h is a hostPath"):
        check_accepted(parse_service(host), SETTINGS)


NAMES = ["m", "n", "llm/a"]
SERVICES = ["a", "b", "c"]


class World(Memory):
    """An API server whose calls may take a while, be refused, or lose their answer; it watches the names."""

    def __init__(self, dice):
        super().__init__()
        self.dice = dice
        self.trouble = 0.0
        self.let_go = set()  # (service, name): it may give the name up
        self.meet = lambda: None  # what the watches bring while a call takes

    async def _wait(self):
        for _ in range(self.dice.randint(0, 3)):
            await asyncio.sleep(0)
            self.meet()
        if self.dice.random() < self.trouble:
            raise ApiError(503, "unavailable")

    async def read(self, kind, namespace, name):
        await self._wait()
        return await super().read(kind, namespace, name)

    async def apply(self, manifest, dry_run=False):
        await self._wait()
        made = await super().apply(manifest, dry_run=dry_run)
        await self._wait()
        return made

    async def apply_status(self, kind, namespace, name, status):
        await self._wait()
        return await super().apply_status(kind, namespace, name, status)

    def store(self, item):
        before = self.held() if item["kind"] == "LLMRoute" else {}
        stored = super().store(item)
        if item["kind"] == "LLMRoute":
            self.check_holders(before)
        return stored

    def held(self):
        """name → services in whose routes it is."""
        found = {}
        for (kind, service), item in self.objects.items():
            if kind == "LLMRoute":
                for name in (*item["spec"]["models"], *item["spec"].get("reserved", ())):
                    found.setdefault(name, set()).add(service)
        return found

    def check_holders(self, before):
        now = self.held()
        for name, holders in now.items():
            assert len(holders) == 1, f"{name} is of {holders}"
        for name, holders in before.items():
            for service in holders - now.get(name, set()):
                own = name.startswith("llm/") and name != f"llm/{service}"
                assert own or (service, name) in self.let_go, f"{name} was taken from {service}"


class Fate:
    """Three services that ask for the same names, with deaths, lost answers and lost events."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.world = World(self.dice)
        self.running = operator(self.world)
        self.generation = 1
        self.asked = {}  # service → names that it has asked for
        self.world.meet = self.see

    def see(self, often=0.1):
        """Some events arrive."""
        for item in list(self.world.objects.values()):
            if self.dice.random() < often:
                self.running.cache.put(copy.deepcopy(item))

    def change(self, service):
        self.generation += 1
        served, world = self.dice.choice(NAMES), self.world
        world.let_go |= {(service, former) for former in self.asked.get(service, ())}
        self.asked.setdefault(service, set()).add(served)
        day = SERVICES.index(service) % 2 + 1
        made = raw(service, served, day, generation=self.generation)
        made["status"] = world.objects.get(("LLMService", service), {}).get("status", {})
        world.store(made)

    def delete(self, service):
        """With all that it owned; whoever missed events lists everything."""
        self.world.let_go |= {(service, name) for name in [*NAMES, f"llm/{service}"]}
        for key in [key for key in self.world.objects if key[1].startswith(service)]:
            del self.world.objects[key]
        self.asked.pop(service, None)
        self.running = operator(self.world)

    async def work(self):
        self.world.trouble = self.dice.choice([0.0, 0.0, 0.15])
        self.see(0.5)
        for name in SERVICES:  # what it asks for again is not to be given up, once that is known
            known = self.running.cache.service(Key("llm", name))
            live = self.world.objects.get(("LLMService", name))
            if known and live and known["metadata"]["generation"] == live["metadata"]["generation"]:
                self.world.let_go.discard((name, live["spec"]["model"]["servedName"]))
        busy = self.dice.sample(SERVICES, self.dice.randint(0, 3))
        for found in await asyncio.gather(*map(self.reconcile, busy), return_exceptions=True):
            assert found is None or isinstance(found, (float, int, ApiError)), repr(found)

    async def reconcile(self, name):
        """Begins while others are under way."""
        for _ in range(self.dice.randint(0, 20)):
            await asyncio.sleep(0)
        self.see()
        return await self.running.reconcile(Key("llm", name))


async def live(seed):
    fate = Fate(seed)
    for _ in range(14):
        service, act = fate.dice.choice(SERVICES), fate.dice.random()
        if act < 0.5:
            fate.change(service)
        elif act < 0.6:
            fate.delete(service)
        elif act < 0.7:
            fate.running = operator(fate.world)
        await fate.work()
    world = fate.world
    world.trouble = 0.0
    running = operator(world)
    for _ in range(12):
        for name in SERVICES:
            await running.reconcile(Key("llm", name))
    for name in SERVICES:
        item = world.objects.get(("LLMService", name))
        if item is not None:
            assert item["status"]["models"] == names_of(world, name)
            conflict = item["status"]["conditions"][0]["status"] == "False"
            asked = item["spec"]["model"]["servedName"]
            assert conflict == (name not in world.held().get(asked, ()))
            assert f"llm/{name}" in names_of(world, name) or conflict


def names_of(world, service):
    spec = world.objects.get(("LLMRoute", service), {"spec": {"models": []}})["spec"]
    return [*spec["models"], *spec.get("reserved", ())]


@pytest.mark.parametrize("part", range(5))
def test_no_two_hold_a_name_and_none_is_taken_from_its_holder(part):
    """`HEADRACE_SEEDS=1000` lives that many lives in each part."""
    seeds = int(os.environ.get("HEADRACE_SEEDS", "4"))
    for seed in range(part * seeds, (part + 1) * seeds):
        asyncio.run(live(seed))
