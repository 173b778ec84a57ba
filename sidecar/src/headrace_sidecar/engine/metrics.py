"""What this sidecar tells Prometheus; docs/metrics.md lists it.

Requests feed histograms and counters as they finish. Everything else is read from the monitor at the moment
of a scrape, so that it costs nothing between scrapes. Counters of requests start with this process: requests
that finished before it started were told by its predecessor.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace_engine.control.records import FinishedRequest, Target
from headrace_sidecar.engine.handover import Handover
from headrace_sidecar.engine.monitor import Monitor
from headrace_sidecar.engine.reports import applied_hash
from headrace_sidecar.engine.state import STATES

LATENCY_BUCKETS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
    *(1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600),
)
TOKEN_BUCKETS = tuple(4**power for power in range(1, 10))


class RequestMetrics:
    """Histograms and counters over finished requests; `started` is this process's start in unix seconds."""

    def __init__(self, registry: CollectorRegistry, started: float) -> None:
        self._started = started

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(
                f"headrace_request_{name}_seconds", text, buckets=LATENCY_BUCKETS, registry=registry
            )

        def tokens(name: str, text: str) -> Histogram:
            return Histogram(
                f"headrace_request_{name}_tokens", text, buckets=TOKEN_BUCKETS, registry=registry
            )

        self._ttft = seconds("ttft", "Arrival to first token")
        self._tbt = seconds("tbt", "Mean time between two tokens of a request")
        self._max_tbt = seconds("max_tbt", "Longest time between two tokens of a request")
        self._jct = seconds("jct", "Arrival to last token")
        self._queue = seconds("queue", "Arrival until first scheduled")
        self._prompt = tokens("prompt", "Prompt length")
        self._output = tokens("output", "Output length")
        self._slo = Counter(
            "headrace_slo_requests",
            "Finished requests that had this target, by whether they met it; All: every target that they had",
            ("target", "met"),
            registry=registry,
        )
        for target, met in itertools.product(("All", *Target.__members__), ("true", "false")):
            self._slo.labels(target, met)
        self._violations = Counter(
            "headrace_tbt_violations",
            "Gaps between two tokens that exceeded the TBT target",
            registry=registry,
        )

    def add(self, requests: Iterable[FinishedRequest]) -> None:
        """Count requests that finished."""
        for request in requests:
            if request.time >= self._started:
                self._add(request)

    def _add(self, request: FinishedRequest) -> None:
        self._ttft.observe(request.ttft)
        self._jct.observe(request.jct)
        self._queue.observe(request.queue_time)
        self._prompt.observe(request.prompt_tokens)
        self._output.observe(request.output_tokens)
        if request.output_tokens > 1:
            self._tbt.observe(request.mean_tbt)
            self._max_tbt.observe(request.max_tbt)
        self._violations.inc(request.tbt_violations)
        for target in Target:
            if request.targets & target:
                self._count(str(target.name), met=bool(request.met & target))
        if request.targets:
            self._count("All", met=not request.targets & ~request.met)

    def _count(self, target: str, *, met: bool) -> None:
        self._slo.labels(target, "true" if met else "false").inc()


class EngineMetrics:
    """A prometheus collector over the monitor and the handover."""

    def __init__(self, monitor: Monitor, handover: Handover, service: str, pod: str) -> None:
        self._monitor = monitor
        self._handover = handover
        self._service = service
        self._pod = pod

    def collect(self) -> Iterator[Metric]:
        """All families, with the numbers of this moment."""
        yield from self._counters()
        yield from self._load()
        yield from self._policy()
        yield from self._engine()

    def _counters(self) -> Iterator[Metric]:
        totals, lost = self._monitor.totals, self._monitor.lost
        yield CounterMetricFamily("headrace_steps", "Scheduler steps", totals.of("step"))
        yield CounterMetricFamily("headrace_requests_arrived", "Requests that arrived", totals.of("arrivals"))
        yield CounterMetricFamily(
            "headrace_prompt_tokens_arrived", "Prompt tokens that arrived", totals.of("arrived_tokens")
        )
        yield CounterMetricFamily(
            "headrace_requests_left",
            "Requests that left the engine, aborted ones included",
            totals.of("finishes"),
        )
        yield CounterMetricFamily(
            "headrace_preemptions",
            "Running requests that had to give their KV back",
            totals.of("preemptions"),
        )
        yield CounterMetricFamily(
            "headrace_policy_fallback_steps",
            "Steps planned first come, first served because the policy failed",
            totals.of("fallback_steps"),
        )
        yield _labelled(
            CounterMetricFamily(
                "headrace_lost_records", "Records overwritten before this sidecar read them", labels=("ring",)
            ),
            {"steps": lost.steps, "finished": lost.finished},
        )

    def _load(self) -> Iterator[Metric]:
        load = self._monitor.load
        yield _labelled(
            GaugeMetricFamily("headrace_requests", "Requests in the engine", labels=("state",)),
            {"running": load.running, "waiting": load.waiting},
        )
        yield _labelled(
            GaugeMetricFamily(
                "headrace_prefill_tokens", "Prompt tokens that are still to be computed", labels=("state",)
            ),
            {"waiting": load.waiting_prefill_tokens, "running": load.unfinished_prefill_tokens},
        )
        yield _labelled(
            GaugeMetricFamily("headrace_kv_blocks", "KV cache blocks", labels=("state",)),
            {"used": load.total_kv_blocks - load.free_kv_blocks, "free": load.free_kv_blocks},
        )
        yield GaugeMetricFamily(
            "headrace_waiting_kv_blocks",
            "KV cache blocks that the waiting prompts will need",
            load.waiting_kv_blocks,
        )
        yield GaugeMetricFamily(
            "headrace_prefill_tokens_per_second",
            "Fitted prefill throughput of a full step; 0 while unknown",
            load.prefill_tokens_per_second,
        )
        yield GaugeMetricFamily(
            "headrace_step_seconds", "Mean duration of recent steps; 0 while unknown", load.step_seconds
        )

    def _policy(self) -> Iterator[Metric]:
        record = self._monitor.record
        applied = applied_hash(record)
        info = GaugeMetricFamily("headrace_policy_info", "The policy in force", labels=("policy", "hash"))
        if applied:
            info.add_metric((self._handover.name(applied), applied), 1)
        yield info
        yield GaugeMetricFamily(
            "headrace_policy_disabled",
            "1 after the circuit breaker replaced the policy by first come, first served",
            int(record.disabled),
        )
        yield GaugeMetricFamily(
            "headrace_policy_refused",
            "1 while the service's policy document is one that this sidecar refused",
            int(self._handover.refusal is not None),
        )

    def _engine(self) -> Iterator[Metric]:
        engine = self._monitor.engine
        yield _labelled(
            GaugeMetricFamily(
                "headrace_engine_state", "1 for the state that the engine is in", labels=("state",)
            ),
            {state: int(state == engine.state) for state in STATES},
        )
        yield CounterMetricFamily("headrace_engine_boots", "Engine starts seen", self._monitor.totals.boots)
        info = GaugeMetricFamily(
            "headrace_engine_info",
            "The engine beside this sidecar",
            labels=("service", "pod", "vllm_version", "boot"),
        )
        info.add_metric((self._service, self._pod, engine.vllm_version, engine.boot), 1)
        yield info


def _labelled(family: Metric, values: dict[str, int]) -> Metric:
    for label, value in values.items():
        family.add_metric((label,), value)  # type: ignore[attr-defined]
    return family
