"""A real Prometheus scrapes a real operator, picker, Envoy and sidecar, and answers dashboards and alerts.

Only the engines are fakes: one writes the sidecar's shared files, others answer Envoy. Targets carry the
labels that discovery finds in a cluster; the chart's own pod monitors make the rest of them.
"""

import asyncio
import dataclasses
import os
import subprocess
import sys
import time

import aiohttp
import pytest

from e2e import helm
from e2e.cluster.places import REPOSITORY
from e2e.monitoring import queries
from e2e.monitoring.scrape import Pod, of_pods
from e2e.monitoring.server import Prometheus, unanswered
from headrace_engine.contracts import PolicyDocument
from headrace_engine.control.policy_file import write_policy
from headrace_engine.control.records import StepSample

for folder in ("operator/tests", "sidecar/tests"):  # their rigs
    sys.path.append(str(REPOSITORY / folder))

import op_kube  # noqa: E402
import op_process  # noqa: E402
import sc_engine_fake  # noqa: E402
import sc_gateway_rig  # noqa: E402

pytestmark = [pytest.mark.apiserver, pytest.mark.envoy, pytest.mark.timeout(300)]

INTERVAL = "1s"
MONITORING = {"podMonitors": {"enabled": True}, "rules": {"enabled": True}, "dashboards": {"enabled": True}}
SCRAPES = 12  # while everything is at work


class Engine:
    """A real sidecar process beside a fake engine that is at work."""

    def __init__(self, root):
        (root / "policy").mkdir()
        self.fake = sc_engine_fake.FakeEngine(root)
        self.document = PolicyDocument(policy="EconoServe").sealed()
        write_policy(root / "policy" / "policy.json", self.document)
        [self.port] = sc_gateway_rig.free_ports(1)
        settings = {
            "HEADRACE_DIR": str(root),
            "HEADRACE_POLICY_DIR": str(root / "policy"),
            "HEADRACE_SERVICE": "llm/chat",
            "HEADRACE_POD": "chat-0",
            "HEADRACE_PORT": str(self.port),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace_sidecar.engine", "serve"],
            env={**os.environ, **settings},
            stderr=subprocess.DEVNULL,
        )

    def work(self):
        """Some steps, arrivals and finished requests, good and bad."""
        record = self.fake.record
        self.fake.apply()
        self.fake.report(
            time=time.time(),
            step=record.step + 20,
            running=3,
            waiting=2,
            arrivals=record.arrivals + 5,
            arrived_tokens=record.arrived_tokens + 500,
            finishes=record.finishes + 4,
            preemptions=record.preemptions + 1,
            fallback_steps=record.fallback_steps + 1,
            free_kv_blocks=40,
            step_tokens=512,
            gauge_1=7.0,
        )
        self.fake.steps.append(StepSample(100, 10_000, 3, 900, 0.02))
        for met in (7, 5):
            self.fake.finished.append(
                sc_engine_fake.finished(met=met, impossible=7 - met, predicted_tokens=21.5)
            )
        self.fake.finished.append(sc_engine_fake.finished(asked=1, predicted_tokens=9.0))

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.fake.close()


@pytest.fixture(scope="module")
def monitors():
    manifests = helm.render({"monitoring": MONITORING})
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] == "PodMonitor"}


@pytest.fixture(scope="module")
def running_operator(apiserver, tmp_path_factory):
    op_kube.install_crd(apiserver)
    operator = op_process.Operator(apiserver, tmp_path_factory.mktemp("operator") / "log").wait()
    kube = op_kube.new_namespace(apiserver, "llm")
    yield operator, kube
    kube.close()
    operator.stop()


@pytest.fixture(scope="module")
def scraped(monitors, running_operator, tmp_path_factory):
    """Prometheus after everything was at work for some scrapes, still scraping; when the work ended."""
    operator, kube = running_operator
    folder = tmp_path_factory.mktemp("monitoring")
    engine, rig = Engine(folder), sc_gateway_rig.Rig(folder)
    system = "headrace-system"
    pods = {
        "headrace-operator": Pod(f"127.0.0.1:{operator.port}", system, "operator-0", "operator"),
        "headrace-picker": Pod(f"127.0.0.1:{rig.http_port}", system, "picker-0", "picker"),
        "headrace-gateway": Pod(f"127.0.0.1:{rig.ready_port}", system, "gateway-0", "envoy"),
        "headrace-engines": Pod(
            f"127.0.0.1:{engine.port}", "llm", "chat-0", "sidecar", {"headrace.dev/service": "chat"}
        ),
    }
    assert pods.keys() == monitors.keys()
    configs = [of_pods(monitors[name], [pod], INTERVAL) for name, pod in pods.items()]
    try:
        with Prometheus(folder, configs, [queries.RULES]) as server:
            yield server, asyncio.run(_at_work(rig, engine, kube))
    finally:
        rig.stop()
        engine.stop()


@pytest.fixture(scope="module")
def prometheus(scraped):
    return scraped[0]


async def _at_work(rig, engine, kube):
    """Requests through Envoy and picker, a picker that is late once, steps, services that come and change.

    Returns the unix time at which the engine reported for the last time: ten seconds later it counts as gone.
    """
    rig.write_catalog({})
    rig.start_picker()
    rig.start_envoy()
    kube.start("chat", model={"source": "pvc://models/tiny", "servedName": "chat"})
    kube.start("bare", podTemplate={"volumes": [{"name": "v", "hostPath": {"path": "/etc"}}]})
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        chat, busy = await rig.engine(1), await rig.engine(2)
        busy.load(waiting=900, waiting_prefill_tokens=10_000_000)
        services = {
            rig.config("chat"): [chat],
            rig.config("busy", max_queue_seconds=0.1): [busy],
            rig.config("empty"): [],
        }
        await rig.apply(session, services)

        async def send(model, **extra):
            url = rig.url + "/v1/chat/completions"
            return (await sc_gateway_rig.posted(session, url, sc_gateway_rig.chat(model, **extra)))[0]

        rig.pause_picker()
        assert await send("chat") == 200  # without the picker
        rig.resume_picker()
        await sc_gateway_rig.until(lambda: rig.picker_healthy(session), "Envoy has the picker back")
        refused = set()  # on a busy machine Envoy may go on without the picker now and then
        for turn in range(SCRAPES * 4):
            engine.work()
            await send("chat")
            if turn % 4 == 0:
                refused |= {await send("busy"), await send("empty")}
                await send("chat", messages=3)
                await send("chat", answer_status=500)
                kube.patch("llmservices", "chat", {"spec": {"replicas": 1 + turn % 3}})
            await asyncio.sleep(0.25)
        ended = time.time()
        await chat.stop()
        await busy.stop()
    assert {429, 503} <= refused
    return ended


def asked():
    return queries.asked("llm", "chat")


def label_names(prometheus, metric):
    return {label for series in prometheus.series(metric) for label in series}


def test_the_dashboards_are_what_their_source_makes():
    command = [sys.executable, "-m", "charts.dashboards", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_is_scraped(prometheus):
    assert [(t["labels"]["job"], t["lastError"]) for t in prometheus.targets() if t["health"] != "up"] == []


def test_everything_that_is_exposed_is_documented(prometheus):
    known = queries.documented()
    names = {series["__name__"] for series in prometheus.series('{__name__=~"headrace_.+|envoy_.+"}')}
    assert {name for name in names if queries.family(name, known) not in known} == set()
    assert known.keys() - {queries.family(name, known) for name in names} == set()


def test_every_panel_is_answered_with_data(scraped):
    prometheus, ended = scraped
    assert unanswered(prometheus, asked(), ended) == []


def test_every_label_that_a_query_names_is_there(prometheus):
    alerts = [queries.Query(rule["alert"], rule["expr"]) for rule in queries.alerts()]
    missing = {}
    for query in (*asked(), *alerts):
        known = set().union(*(label_names(prometheus, metric) for metric in query.metrics))
        if not query.metrics or query.labels - known:
            missing[query.where] = query.labels - known
    assert missing == {}


def test_every_legend_is_a_label_of_the_answer(prometheus):
    missing = {}
    for query in asked():
        shown = dataclasses.replace(query, expression="").labels
        for series in prometheus.query(query.expression):
            if shown - series["metric"].keys():
                missing[query.where] = shown - series["metric"].keys()
    assert missing == {}


def test_every_alert_is_evaluated(prometheus):
    deadline = time.monotonic() + 30
    while any(rule["health"] == "unknown" for rule in prometheus.rules()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    rules = {rule["name"]: rule for rule in prometheus.rules()}
    assert rules.keys() == {rule["alert"] for rule in queries.alerts()}
    assert {name: rule.get("lastError") for name, rule in rules.items() if rule["health"] != "ok"} == {}


def test_a_service_is_called_the_same_by_all_parts(prometheus):
    metrics = (
        "headrace_service_condition",
        "headrace_gateway_picks_total",
        "headrace_requests_arrived_total",
        "headrace_engine_info",
        "envoy_cluster_upstream_rq_xx",
    )
    for metric in metrics:
        assert prometheus.query(f'{metric}{{namespace="llm", service="chat"}}'), metric


def test_what_is_pending_is_what_is_wrong(prometheus):
    """The refused spec and the engine that plans FCFS show as alerts about to fire; what is well does not."""
    active = {rule["name"] for rule in prometheus.rules() if rule.get("alerts")}
    assert {"HeadraceSpecRefused", "HeadraceServiceNotReady", "HeadracePolicyFallback"} <= active
    assert not active & {"HeadraceOperatorAway", "HeadracePickerAway", "HeadraceGatewayDown"}
