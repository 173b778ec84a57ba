"""Pods of kwok as the operator sees them: their engines have what they were given, and were asked this much.

The requests are made up here, and counted by the sidecar's own log of traffic.
"""

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from e2e.bench.traffic_sums import finished
from e2e.demo.kube import Kube, Object
from headrace_engine.contracts import AppliedPolicy, EngineInfo, EngineStatus, encode, text_hash
from headrace_operator import names
from headrace_sidecar.traffic_log import TrafficLog

HOUR = 3600
PROMPT_TOKENS, OUTPUT_TOKENS = (100, 1500), (50, 400)  # of a request: least and most
_PAUSE = 0.5  # seconds


class AskedPods:
    """The pods of a namespace's services that run on nodes of kwok.

    `rates`: requests/s by service. `asked_since`: from when on, in unix seconds; may be set to the past.
    """

    def __init__(self, kube: Kube, namespace: str, file: Path, rates: dict[str, float]) -> None:
        self.rates = rates
        self.asked_since = time.time()
        self._kube = kube
        self._namespace = namespace
        self._file = file
        self._logs: dict[str, TrafficLog] = {}  # by pod uid
        self._random = random.Random(0)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Keep the file of answers up to date in the block."""
        over = threading.Event()
        thread = threading.Thread(target=self._keep_answering, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _keep_answering(self, over: threading.Event) -> None:
        while not over.wait(_PAUSE):
            self.answer()

    def answer(self) -> None:
        """Have the pods asked what came since the last time, and tell."""
        since, now = self.asked_since, time.time()
        self.asked_since = now
        documents = {
            each["metadata"]["name"]: each.get("data", {})
            for each in self._kube.items(self._namespace, "configmaps")
        }
        pods = [
            pod
            for pod in self._kube.items(self._namespace, "pods", names.SERVICE_LABEL)
            if _service(pod) in self.rates and "podIP" in pod.get("status", {})
        ]
        for service, rate in self.rates.items():
            self._ask([pod for pod in pods if _service(pod) == service], rate, since, now)
        answers = {
            pod["status"]["podIP"]: {
                "/status": encode(_status(documents.get(f"{_service(pod)}-policy", {}))),
                "/traffic": encode(self._log(pod).last_hour(now)),
            }
            for pod in pods
        }
        written = self._file.with_suffix(".new")
        written.write_text(json.dumps(answers))
        written.rename(self._file)

    def _ask(self, pods: list[Object], rate: float, since: float, now: float) -> None:
        """Give each request that came to one of the pods."""
        at = since
        while pods and (at := at + self._random.expovariate(rate)) < now:
            prompt, output = (self._random.randint(*ends) for ends in (PROMPT_TOKENS, OUTPUT_TOKENS))
            self._log(self._random.choice(pods)).add([finished(at, prompt, output)])

    def _log(self, pod: Object) -> TrafficLog:
        return self._logs.setdefault(pod["metadata"]["uid"], TrafficLog())


def _service(pod: Object) -> str:
    return str(pod["metadata"]["labels"][names.SERVICE_LABEL])


def _status(documents: Object) -> EngineStatus:
    """Return what a sidecar says whose engine does as it was told."""
    policy = json.loads(documents.get(names.POLICY_FILE, "{}"))
    group = documents.get(names.TURN_GROUP_FILE, "")
    applied = AppliedPolicy(policy.get("policy", ""), policy.get("hash", ""))
    return EngineStatus(
        runtime_version="0.1.0",
        policies=("FCFS",),
        policy_schema=2,
        engine=EngineInfo("Running"),
        policy=applied,
        turn_group=text_hash(group.encode()) if group else "",
    )
