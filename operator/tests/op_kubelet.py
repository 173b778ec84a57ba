"""Plays kubelet, sidecar and engine for the pods of one namespace, since the test's API server has no node.

Each pod gets an address of its own on loopback, a ready status, and a server on port 9400 that answers
`/status` and `/traffic`. As with a real kubelet, a changed policy reaches the pod only when an annotation
changes too.
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from op_world import routed

from headrace_engine.contracts import AppliedPolicy, EngineInfo, EngineStatus, dumps, text_hash
from headrace_engine.contracts.traffic import Traffic

_ADDRESSES = iter(range(2, 65_000))
# Tests that run side by side each have a network of their own, since the port is fixed.
_NETWORK = f"127.{9 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw'))}"
SERVING = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]


class FakeNode:
    """Runs the pods of `kube`'s namespace until it is left."""

    def __init__(self, kube, policies=("FCFS", "LARRY"), picker=False):
        self.kube = kube
        self.picker = picker  # report every pod as routed, as the gateway does
        self.policies = policies
        self.engines = {}
        self.info = EngineInfo("Idle", vllm_version="0.32.0", boot="b1")
        self.windows = ()  # that each engine was asked
        self.problem = None  # a pod status to report instead of a ready one
        self.problems = {}  # the same by engine image
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(60)
        for engine in self.engines.values():
            engine.close()

    def _run(self):
        while not self._stop.wait(0.05):
            for pod in self.kube.list("pods", labelSelector="headrace.dev/service"):
                self._tend(pod)
            for pod in self.kube.list("pods", labelSelector="headrace.dev/gpu-pool"):
                self._say(pod, {"conditions": SERVING})
            for route in self.kube.list("llmroutes") if self.picker else ():
                self._report(route)

    def _report(self, route):
        told = routed(*sorted(self.engines), generation=route["metadata"]["generation"])
        if not contains(route.get("status", {}), told):
            self.kube.patch("llmroutes", route["metadata"]["name"], {"status": told}, sub="status")

    def _tend(self, pod):
        uid = pod["metadata"]["uid"]
        if uid not in self.engines:
            self.engines[uid] = _Engine(self)
        engine = self.engines[uid]
        image = next(c["image"] for c in pod["spec"]["containers"] if c["name"] == "engine")
        status = self.problem or self.problems.get(image) or gated(pod, engine.pod_status())
        self._say(pod, status)
        refresh = pod["metadata"].get("annotations", {}).get("headrace.dev/policy-refresh", "")
        if engine.seen_refresh != refresh or not engine.hash:
            service = pod["metadata"]["labels"]["headrace.dev/service"]
            config_map = self.kube.get("configmaps", f"{service}-policy")
            if config_map is not None:  # else the service is being deleted
                engine.seen_refresh = refresh
                engine.take(config_map["data"])

    def _say(self, pod, status):
        if not contains(pod.get("status", {}), status):
            answer = self.kube.patch("pods", pod["metadata"]["name"], {"status": status}, sub="status")
            assert answer.status_code in {200, 404, 409}, answer.text  # gone, or in someone else's hands


class _Engine:
    def __init__(self, node):
        self.node = node
        number = next(_ADDRESSES)
        self.ip = f"{_NETWORK}.{number // 250}.{number % 250 + 1}"
        self.hash, self.policy, self.rejected, self.seen_refresh = "", "", "", ""
        self.turn_group = ""
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                told = Traffic(engine.node.windows) if self.path == "/traffic" else engine.status()
                body = dumps(told).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer((self.ip, 9400), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, documents):
        group = documents.get("turn-group.json")
        self.turn_group = text_hash(group.encode()) if group else ""
        document = json.loads(documents["policy.json"])
        if document["policy"] in self.node.policies:
            self.hash, self.policy = document["hash"], document["policy"]
        else:
            self.rejected = document["hash"]

    def status(self):
        applied = "" if self.node.info.state == "Stock" else self.hash
        error = "this runtime does not know the policy" if self.rejected else ""
        policy = AppliedPolicy(self.policy, applied, self.rejected, error)
        return EngineStatus(
            *("0.1.0", self.node.policies, 1, self.node.info, policy), turn_group=self.turn_group
        )

    def pod_status(self):
        running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        return {
            "phase": "Running",
            "podIP": self.ip,
            "podIPs": [{"ip": self.ip}],
            "conditions": SERVING,
            "containerStatuses": [
                {"name": "engine", "state": running, "ready": True, "started": True, "restartCount": 0}
                | {"image": "example/vllm:1", "imageID": "1"}
            ],
        }

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def gated(pod, status):
    """As a kubelet: containers that are ready make no ready pod while a gate is closed."""
    gates = {gate["conditionType"] for gate in pod["spec"].get("readinessGates", ())}
    others = [each for each in pod.get("status", {}).get("conditions", ()) if each["type"] in gates]
    if not gates:
        return status
    ready = len(gates) == len([each for each in others if each["status"] == "True"])
    own = {"PodScheduled": "True", "ContainersReady": "True", "Ready": str(ready)}
    conditions = [{"type": kind, "status": value} for kind, value in own.items()]
    return {**status, "conditions": [*others, *conditions]}


def contains(live, ours):
    """Whether `live` has every key of `ours`."""
    if isinstance(ours, dict):
        return isinstance(live, dict) and all(contains(live.get(key), value) for key, value in ours.items())
    if isinstance(ours, list):
        return isinstance(live, list) and len(live) == len(ours) and all(map(contains, live, ours))
    return live == ours
