"""The kill campaign's plan and figures, without a cluster."""

import contextlib
import json
import time
from collections import Counter

import httpx
import pytest

from e2e.bench.faults import cases as faults_cases
from e2e.bench.faults import study as faults
from e2e.bench.faults import testbed as faults_testbed
from e2e.bench.faults.figures import Away, Damage, Kill, Outage, Record, broken, cause, clear, figures, lost
from e2e.bench.faults.testbed import Inventory, damage
from e2e.bench.faults.traffic import Ask, Load, asks, complaint
from e2e.bench.outages.study import figures as outage_figures
from e2e.bench.outages.study import find_broken_limits
from e2e.bench.outages.testbed import Outage as ApiOutage
from e2e.bench.outages.testbed import Quarrel
from e2e.demo.steps import Steps

ENVOY = Kill("envoy", at=10.0, back=13.0, healed=14.0)
KUBELET = Kill("kubelet", at=10.0, back=13.0, healed=14.0)
ALONE = Kill("engine", at=10.0, back=40.0, healed=41.0, service="code", noticed=11.5)
SPARED = Kill("engine", at=10.0, back=40.0, healed=41.0, service="chat", spare=True)
AWAY = Away(began=0.0, ended=45.0, policies_kept=True)


def record(sent, ended, service="chat", *, status=None, error="ReadError: ", streamed=True):
    return Record(service, streamed, sent, ended, status, error)


def test_each_round_kills_every_part_once_and_begins_with_the_kubelet():
    steps = faults_cases.kills(seed=3, rounds=10)
    assert Counter(step.part for step in steps) == dict.fromkeys(faults_cases.PARTS, 10)
    assert {step.part for step in steps[::6]} == {"kubelet"}
    assert len({tuple(step.part for step in steps[n : n + 6]) for n in range(0, 60, 6)}) > 5


def test_a_plan_follows_from_its_seed_alone():
    assert faults_cases.kills(1, 3) == faults_cases.kills(1, 3)
    assert faults_cases.kills(1, 3) != faults_cases.kills(2, 3)
    assert faults_cases.kills(1, 3)[:6] == faults_cases.kills(1, 1)


def test_the_api_server_is_left_alone_until_kubernetes_clients_have_forgotten_its_last_absence():
    step = next(step for step in faults_cases.kills(0, 1) if step.part == "kube-apiserver")
    assert faults_cases.pause(step, {}, 500.0) == step.pause
    assert faults_cases.pause(step, {"kube-apiserver": 450.0, "kubelet": 499.0}, 500.0) == 90.0
    assert faults_cases.pause(step, {"kube-apiserver": 300.0}, 500.0) == step.pause


def test_engines_of_both_services_are_killed_in_turn():
    assert [step.service for step in faults_cases.engines(0, 3)] == ["chat", "code", "chat"]


@pytest.mark.parametrize(
    ("kill", "failed", "excused"),
    [
        (ENVOY, record(9.0, 10.1), "envoy"),
        (ENVOY, record(14.9, 15.0), "envoy"),
        (ENVOY, record(8.0, 9.9), ""),
        (ENVOY, record(15.1, 15.2), ""),
        (ALONE, record(9.0, 10.1, "code"), "engine"),
        (ALONE, record(41.0, 41.1, "code", status=503), "engine"),
        (ALONE, record(9.0, 10.1, "chat"), ""),
        (ALONE, record(43.0, 43.1, "code", status=503), ""),
        (SPARED, record(11.9, 12.5), "engine"),
        (SPARED, record(12.1, 12.5), ""),
        (KUBELET, record(10.1, 10.2), "kubelet"),
        (KUBELET, record(9.9, 10.2), ""),
        (KUBELET, record(10.1, 10.2, status=503), ""),
        (KUBELET, record(16.1, 16.2), ""),
        (Kill("picker", at=10.0, back=13.0, healed=14.0), record(9.0, 10.1), ""),
    ],
)
def test_only_what_carried_a_request_or_would_have_excuses_its_loss(kill, failed, excused):
    assert cause(failed, [kill]) == excused
    assert lost([failed], [kill]) == ([] if excused else [failed])


@pytest.mark.parametrize(
    ("status", "streamed", "told"),
    [(503, False, True), (502, True, True), (200, True, True), (200, False, False), (None, True, False)],
)
def test_a_client_can_tell_that_its_engine_died(status, streamed, told):
    assert clear(record(1, 2, status=status, streamed=streamed)) is told


def test_a_campaign_in_numbers():
    records = [record(9.5, 10.5, error=""), record(9.0, 10.2), record(30.0, 30.5, "code", status=503)]
    killed = [ENVOY, ALONE, Kill("picker", at=50.0, back=52.0, healed=54.5)]
    found = figures(records, killed, Damage(), AWAY, Outage(300.0, 20.0, 150.0))
    assert found["requests_in_flight_at_kills"] == 4
    assert found["requests_lost"] == 0
    assert found["requests_lost_with_their_envoy"] == 1
    assert found["requests_lost_with_their_engine"] == 1
    assert found["worst_recovery_seconds"] == 4.5
    assert found["worst_recovery_seconds_by_part"] == {"envoy": 4.0, "engine": 31.0, "picker": 4.5}
    assert found["worst_endpoint_gone_seconds"] == 1.5
    assert found["outage_operator_requests_per_second"] == 0.5
    assert (found["operator_away_seconds"], found["operator_away_share"]) == (45.0, 1.0)
    assert broken(found) == []


def test_every_limit_that_is_not_kept_is_told():
    records = [record(1.0, 2.0), record(10.5, 11.0, "code", status=500)]
    killed = [ALONE, Kill("operator", at=0.0, back=1.0, healed=31.0)]
    found = figures(records, killed, Damage(1, 1) + Damage(0, 1), AWAY, Outage(10.0, 61.0, 11.0))
    assert [told.split()[0] for told in broken(found)] == [
        "requests_lost",
        "unclear_answers_of_dead_engines",
        "engine_restarts",
        "wrong_deletes",
        "worst_recovery_seconds",
        "outage_healed_seconds",
        "outage_operator_requests_per_second",
        "operator_away_share",
    ]


def test_requests_alternate_between_services_and_ways():
    plan = asks(seed=0)
    some = [next(plan) for _ in range(40)]
    assert [ask.service for ask in some[:4]] == ["chat", "code", "chat", "code"]
    assert {ask.streamed for ask in some} == {True, False}
    assert len({ask.text_seed for ask in some}) == 40


def stream(*counts, end="data: [DONE]\n"):
    events = ({"choices": [{"token_ids": [1] * count}]} for count in counts)
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + end


ERROR = json.dumps({"error": {"code": "service_unavailable", "message": "no healthy upstream"}})


@pytest.mark.parametrize(
    ("streamed", "status", "text", "wrong"),
    [
        (True, 200, stream(2, 1), ""),
        (True, 200, stream(2, 1, end=""), "the stream ended early"),
        (True, 200, stream(2), "2 of 3 tokens came"),
        (False, 200, '{"usage": {"completion_tokens": 3}}', ""),
        (False, 200, '{"usage": {"completion_tokens": 1}}', "1 of 3 tokens came"),
        (False, 503, ERROR, "HTTP 503 service_unavailable: no healthy upstream"),
        (False, 503, "oops", "HTTP 503, not an answer of OpenAI's API: oops"),
    ],
)
def test_an_answer_counts_only_whole(streamed, status, text, wrong):
    assert complaint(Ask("chat", 3, streamed, "seed"), status, text) == wrong


HELD = ApiOutage("500", 0, alive=True, same_pods=True, requests_per_second=0.9, healed_seconds=20.0)


def test_an_outage_held_only_within_every_limit():
    bad = ApiOutage("hang", 1, alive=False, same_pods=False, requests_per_second=1.1, healed_seconds=61.0)
    assert find_broken_limits(HELD) == []
    assert len(find_broken_limits(bad)) == 5
    kept = Quarrel("status", writes_per_second=1.5, foreign_kept=True, settled_seconds=2.0)
    assert find_broken_limits(kept) == []
    assert len(find_broken_limits(Quarrel("status", 0.0, foreign_kept=False, settled_seconds=11.0))) == 3
    shares = outage_figures([HELD, bad, kept], 300.0)
    assert (shares["i07"], shares["i08"], shares["requests_per_second"]) == (0.5, 1.0, 1.1)


def gateway(request):
    match json.loads(request.content)["model"]:
        case "chat":
            return httpx.Response(200, text=stream(2, 1))
        case "code":
            return httpx.Response(503, text=ERROR)
        case _:
            raise httpx.ReadError("broken")


async def test_what_came_of_each_request_is_kept():
    load = Load("http://gateway")
    async with httpx.AsyncClient(base_url=load.url, transport=httpx.MockTransport(gateway)) as client:
        for service in ("chat", "code", "none"):
            await load.send(client, Ask(service, 3, streamed=True, text_seed="seed"))
    told = [(each.status, each.error.partition(":")[0]) for each in load.records]
    assert told == [(200, ""), (503, "HTTP 503 service_unavailable"), (None, "ReadError")]
    assert all(each.ended >= each.sent for each in load.records)


class FakeTestbed:
    """A cluster where each kill takes a second; the third finds an engine restarted and an object gone."""

    def __init__(self):
        self.now, self.scaled, self.killed, self.changed = 0.0, [], [], []
        self.cluster = self
        self.kube = Kube(self.scaled)

    def _kill(self, step, **more):
        self.killed.append(step.part)
        self.now += 1.0
        return Kill(step.part, self.now - 1.0, self.now, self.now, **more)

    def kill(self, step, number):
        self.changed.append(number)
        return self._kill(step)

    def kill_engine(self, step):
        return self._kill(step, service=step.service)

    def inventory(self):
        late = len(self.killed) >= 3
        return Inventory(frozenset({"a"} if late else {"a", "b"}), {"a": len(self.killed) // 3})

    def policies(self):
        return {"a": "LARRY 1"}

    def pods(self, part):
        return []

    def settled(self):
        return True

    def operator_requests(self, pods):
        self.now += 3.0
        return self.now

    def aim(self, part):
        return lambda: self.killed.append(part), lambda: True

    def change(self, service, number):
        self.changed.append(number)

    @contextlib.contextmanager
    def held(self, component):
        self.killed.append(component)
        yield


class Kube:
    def __init__(self, scaled):
        self._scaled = scaled

    def __call__(self, *arguments):
        self._scaled.append(arguments[-1])

    def get(self, *_):
        return {"spec": {"replicas": 2}}


@pytest.fixture
def campaign(monkeypatch):
    monkeypatch.setattr(faults.time, "sleep", lambda _: None)
    return faults.Campaign(FakeTestbed(), Load(""), Steps())


def test_a_campaign_counts_kills_and_what_they_cost(campaign):
    campaign.kill_parts(faults_cases.kills(seed=0, rounds=1))
    found = campaign.figures()
    assert (found["kills"], found["engine_restarts"], found["wrong_deletes"]) == (6, 2, 1)
    assert campaign.testbed.changed == [1, 2, 3, 4, 5, 6]


def test_engines_die_while_no_operator_is_there_and_it_comes_back(campaign):
    campaign.kill_engines(faults_cases.engines(seed=0, count=2))
    assert campaign.testbed.scaled == ["--replicas=0", "--replicas=2"]
    assert campaign.figures()["operator_away_share"] == 1.0


def test_the_picker_dies_while_the_api_server_is_away(campaign):
    campaign.cut_off(0.0)
    assert campaign.testbed.killed == ["kube-apiserver", "picker"]
    assert campaign.outage.operator_requests == 3.0


def test_engines_that_restart_or_go_are_seen():
    before = Inventory(frozenset("ab"), {"a": 1, "b": 0})
    assert damage(before, Inventory(frozenset("ab"), {"a": 2, "b": 0}), killed=1) == Damage(0, 0)
    assert damage(before, Inventory(frozenset("a"), {"a": 1})) == Damage(1, 1)


def test_what_breaks_while_the_killing_command_still_runs_is_the_kills():
    broke = []
    pod = {
        "metadata": {"name": "envoy-0", "namespace": "headrace-system"},
        "status": {"containerStatuses": [{"name": "envoy", "containerID": "containerd://e1"}]},
    }

    class Cluster:
        def kill_container(self, identifier):
            broke.append(time.monotonic())

    class Kube:
        def items(self, *_):
            return [pod]

    strike, _ = faults_testbed.Testbed(Kube(), Cluster(), url="").aim("envoy")
    at = strike()
    assert at <= broke[0]
    assert cause(
        Record("chat", True, at - 1.0, broke[0], 200, "cut"), [Kill("envoy", at, at + 3.0, at + 3.0)]
    )
