"""A real Prometheus scrapes a real operator, picker, Envoy and sidecar, and answers dashboards and alerts.

Only the engines are fakes: one writes the sidecar's shared files, others answer Envoy. Targets carry the
labels that discovery finds in a cluster; the chart's own pod monitors make the rest of them.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import pytest

from e2e import helm, ports
from e2e.bench.continuation.signer import Signer
from e2e.cluster.places import REPOSITORY
from e2e.monitoring import queries
from e2e.monitoring.scrape import Pod, of_pods
from e2e.monitoring.server import Prometheus, unanswered
from headrace_engine.contracts import PolicyDocument
from headrace_engine.control.policy_file import write_policy
from headrace_engine.control.records import StepSample

for folder in ("operator/tests", "sidecar/engine/tests", "sidecar/gateway/tests"):  # their rigs
    sys.path.append(str(REPOSITORY / folder))

import gw_rig  # noqa: E402
import op_kube  # noqa: E402
import op_process  # noqa: E402
import op_release  # noqa: E402
import sc_fake_engine  # noqa: E402

pytestmark = [pytest.mark.apiserver, pytest.mark.envoy, pytest.mark.timeout(300)]

INTERVAL = "1s"
PLACEMENT = {"gpus": {"type": "H100"}, "services": [{"name": "chat"}]}
MONITORING = {"podMonitors": {"enabled": True}, "rules": {"enabled": True}, "dashboards": {"enabled": True}}
SCRAPES = 12  # while everything is at work
SCRAPE = ("up", "scrape_", "ALERTS")  # Prometheus' own, of every target
FORGER = {"namespace": "thief", "service": "steal", "pod": "forger-0"}
CLAIMED = 'namespace="llm",service="chat",pod="chat-0",container="sidecar",job="headrace-engines"'
FORGED = f"""\
headrace_engine_state{{state="Hung",{CLAIMED}}} 1
headrace_engine_state{{state="Hung",exported_namespace="llm",exported_service="chat",{CLAIMED}}} 1
headrace_slo_requests_total{{target="All",met="false",set_by="Service",{CLAIMED}}} 1e9
headrace_engine_boots_total{{instance="127.0.0.1:1",{CLAIMED}}} 9
headrace_service_condition{{condition="Ready",reason="Forged",{CLAIMED}}} 0
headrace_service_condition{{condition="Accepted",reason="Forged",exported_namespace="llm",service="chat"}} 0
headrace_gateway_engines{{state="reporting",{CLAIMED}}} 0
headrace_gateway_leader 0
headrace_gateway_envoys 100
headrace_operator_leader 1
envoy_cluster_upstream_rq_xx{{envoy_cluster_name="llm/chat",envoy_response_code_class="5",{CLAIMED}}} 1e9
kube_pod_info{{{CLAIMED}}} 1
ALERTS{{alertname="HeadraceServiceDown",alertstate="firing",{CLAIMED}}} 1
"""


class Engine:
    """A real sidecar process beside a fake engine that is at work."""

    def __init__(self, root):
        (root / "policy").mkdir()
        self.fake = sc_fake_engine.FakeEngine(root)
        self.document = PolicyDocument(policy="EconoServe").sealed()
        write_policy(root / "policy" / "policy.json", self.document)
        [self.port] = ports.free(1)
        settings = {
            "HEADRACE_DIR": str(root),
            "HEADRACE_POLICY_DIR": str(root / "policy"),
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
                sc_fake_engine.finished(met=met, impossible=7 - met, predicted_tokens=21.5)
            )
        self.fake.finished.append(sc_fake_engine.finished(overridden=1, predicted_tokens=9.0))

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.fake.close()


@contextlib.contextmanager
def forging():
    """A tenant's pod that has itself scraped; where it listens, and where one that sends without end does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(FORGED.encode())
                for number in itertools.count() if self.server is flood else ():
                    self.wfile.write(b'headrace_steps_total{n="%d"} 1\n' % number)

        def log_message(self, *_):
            pass

    servers = _, flood = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [f"127.0.0.1:{server.server_port}" for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def monitors():
    manifests = helm.render({"monitoring": MONITORING})
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] == "PodMonitor"}


@pytest.fixture(scope="module")
def running_operator(apiserver, tmp_path_factory):
    op_kube.install_crd(apiserver)
    op_release.install(apiserver)
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
    engine, rig = Engine(folder), gw_rig.Rig(folder)
    system = "headrace-system"
    pods = {
        "headrace-operator": Pod(f"127.0.0.1:{operator.port}", system, "operator-0", "operator"),
        "headrace-picker": Pod(f"127.0.0.1:{rig.http_port}", system, "picker-0", "picker"),
        "headrace-gateway": Pod(f"127.0.0.1:{rig.ready_port}", system, "gateway-0", "envoy"),
        "headrace-relay": Pod(f"127.0.0.1:{rig.relay_http_port}", system, "gateway-0", "relay"),
        "headrace-engines": Pod(
            f"127.0.0.1:{engine.port}", "llm", "chat-0", "sidecar", {"headrace.dev/service": "chat"}
        ),
    }
    assert pods.keys() == monitors.keys()
    try:
        with forging() as (forger, flood):
            configs = [of_pods(monitors[name], [pod], INTERVAL) for name, pod in pods.items()]
            strangers = [
                Pod(forger, "thief", "forger-0", "sidecar", {"headrace.dev/service": "steal"}),
                Pod(forger, "thief", "unlabelled-0", "sidecar"),
                Pod(flood, "thief", "flood-0", "sidecar", {"headrace.dev/service": "steal"}),
            ]
            stranger = of_pods(monitors["headrace-engines"], strangers, INTERVAL)
            configs.append({**stranger, "job_name": "strangers"})
            with Prometheus(folder, configs, [queries.RULES]) as server:
                yield server, asyncio.run(_at_work(rig, engine, kube))
    finally:
        rig.stop()
        engine.stop()


@pytest.fixture(scope="module")
def prometheus(scraped):
    return scraped[0]


async def _at_work(rig, engine, kube):
    """Requests through Envoy and picker, a picker that is late once, streams that move or lose engines,
    steps, services that come and change.

    Returns the unix time at which the engine reported for the last time: ten seconds later it counts as gone.
    """
    rig.write_catalog({})
    rig.start_picker()
    Signer().write(rig.folder / "key.pem")
    rig.start_relay(rig.folder / "key.pem")
    rig.start_envoy()
    kube.start("chat", model={"source": "pvc://models/tiny", "servedName": "chat"})
    _plan(kube)
    kube.start("bare", podTemplate={"volumes": [{"name": "v", "hostPath": {"path": "/etc"}}]})
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        chat, busy, other = [await rig.engine(number) for number in (1, 2, 3)]
        busy.load(waiting=900, waiting_prefill_tokens=10_000_000)
        services = {
            rig.config("chat", resume=True, drain="Move"): [chat, other],
            rig.config("busy", max_queue_ms=100): [busy],
            rig.config("empty"): [],
        }
        await rig.apply(session, services)

        async def send(model, **extra):
            url = rig.url + "/v1/chat/completions"
            return (await gw_rig.posted(session, url, gw_rig.chat(model, **extra)))[0]

        async def stream(text, tokens=5):
            body = gw_rig.chat("chat", text, stream=True, max_tokens=tokens)
            async with session.post(rig.url + "/v1/chat/completions", json=body) as response:
                await response.read()

        long = [asyncio.create_task(stream("long", 300)) for _ in range(4)]
        await gw_rig.until(lambda: chat.served, "a stream on the engine that is stopped")
        addresses = {config: [each.address for each in engines] for config, engines in services.items()}
        addresses[next(iter(services))] = [other.address]
        rig.write_catalog(addresses, terminating=[chat.address])
        await asyncio.gather(*long)
        await rig.apply(session, services)
        rig.pause_picker()
        assert await send("chat") == 200  # without the picker
        rig.resume_picker()
        await gw_rig.until(lambda: rig.picker_healthy(session), "Envoy has the picker back")
        refused = set()  # on a busy machine Envoy may go on without the picker now and then
        for turn in range(SCRAPES * 4):
            engine.work()
            await send("chat")
            if turn % 4 == 0:
                refused |= {await send("busy"), await send("empty")}
                await send("chat", messages=3)
                await send("chat", answer_status=500)
                for lost in (chat.address, other.address, "any"):
                    await stream(f"lose 3 {lost}")
                await stream("preempt 3 any")
                kube.patch("llmservices", "chat", {"spec": {"replicas": 1 + turn % 3}})
            await asyncio.sleep(0.25)
        ended = time.time()
        for each in (chat, busy, other):
            await each.stop()
    assert {429, 503} <= refused
    return ended


def _plan(kube):
    """A pool whose last plan is of an operator before: these engines tell nobody what they are asked."""
    op_kube.ok(kube.create("gpupools", op_kube.gpupool(placement=PLACEMENT)))
    plan = {
        "time": "2026-01-01T00:00:00Z",
        "gpus": 1,
        "gpusToday": 2,
        "services": [{"name": "chat", "requests": 9, "measuredPercent": 90, "plannedPercent": 95}],
    }
    op_kube.ok(kube.patch("gpupools", "shared", {"status": {"plan": plan}}, sub="status"))


def asked():
    return queries.asked("llm", "chat", "shared")


def label_names(prometheus, metric):
    return {label for series in prometheus.series(metric) for label in series}


def test_the_dashboards_are_what_their_source_makes():
    command = [sys.executable, "-m", "charts.dashboards", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_is_scraped(prometheus):
    down = [t["labels"] for t in prometheus.targets() if t["health"] != "up"]
    assert [(labels["job"], labels["pod"]) for labels in down] == [("strangers", "flood-0")]


def test_a_pod_that_claims_to_be_another_is_told_by_where_it_is(prometheus):
    found = [s for s in prometheus.series('{job="strangers"}') if not s["__name__"].startswith(SCRAPE)]
    names = {"headrace_engine_state", "headrace_slo_requests_total", "headrace_engine_boots_total"}
    assert {each["__name__"] for each in found} == names
    assert {each["instance"] for each in found} == {
        t["labels"]["instance"] for t in prometheus.targets() if t["labels"]["pod"] == "forger-0"
    }
    for each in found:
        assert each.items() >= FORGER.items()
        assert not [label for label in each if label.startswith("exported_")]
    engines = prometheus.series('{job="headrace-engines"}')
    assert {each["namespace"] for each in engines} == {"llm"}


def test_nothing_forged_is_of_another_service_or_part(prometheus):
    assert prometheus.query('count({__name__=~".+", reason="Forged"})') == []
    assert prometheus.query('headrace_engine_state{namespace="llm", state="Hung"} == 1') == []
    assert [s["value"][1] for s in prometheus.query("sum(headrace_gateway_envoys)")] == ["1"]
    for name in ("headrace_gateway_leader", "headrace_operator_leader"):
        assert len(prometheus.series(name)) == 1, name
    assert prometheus.query('sum(envoy_cluster_upstream_rq_xx{namespace="llm"}) < 1e6')
    assert {s["namespace"] for s in prometheus.series('ALERTS{job="strangers"}')} <= {"thief"}


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
