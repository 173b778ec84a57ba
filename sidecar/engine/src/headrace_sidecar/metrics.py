"""What this sidecar tells Prometheus; docs/metrics.md lists it.

Requests feed histograms and counters as they finish. Everything else is read from the monitor at the moment
of a scrape, so that it costs nothing between scrapes. All counters start with this process. Which service and
pod it is, Prometheus knows from where it asked: a pod is not believed that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace_engine.control.records import FinishedRequest, Target, TurnCode
from headrace_engine.policies import registry
from headrace_sidecar.handover import Handover
from headrace_sidecar.monitor import Monitor
from headrace_sidecar.reports import applied_hash, prediction_state
from headrace_sidecar.state import STATES

LATENCY_BUCKETS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
    *(1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600),
)
RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 10)
SETTERS = ("Service", "Client")
TURN_STATES = {TurnCode.NONE: "None", TurnCode.IN_TURNS: "InTurns", TurnCode.ALONE: "Alone"}
TOKEN_BUCKETS = tuple(4**power for power in range(1, 10))


class RequestMetrics:
    """Histograms and counters over finished requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def seconds(name: str, text: str) -> Histogram:
            return Histogram(
                f"headrace_request_{name}_seconds", text, buckets=LATENCY_BUCKETS, registry=registry
            )

        def tokens(name: str, text: str) -> Histogram:
            return Histogram(
                f"headrace_request_{name}_tokens", text, buckets=TOKEN_BUCKETS, registry=registry
            )

        self._ttft = seconds("ttft", "Arrival to first token")
        self._tpot = seconds("tpot", "Mean time between two tokens of a request")
        self._max_itl = seconds("max_itl", "Longest time between two tokens of a request")
        self._e2e = seconds("e2e", "Arrival to last token")
        self._queue = seconds("queue", "Arrival until first scheduled")
        self._prompt = tokens("prompt", "Prompt length")
        self._output = tokens("output", "Output length")
        self._slo = Counter(
            "headrace_slo_requests",
            "Finished requests that had this target (All: any), by whether they met it (All: all they had) "
            "and whether they brought targets of their own",
            ("target", "met", "set_by"),
            registry=registry,
        )
        for labels in itertools.product(("All", *Target.__members__), ("true", "false"), SETTERS):
            self._slo.labels(*labels)
        self._impossible = Counter(
            "headrace_slo_impossible_requests",
            "Finished requests that would have missed this target even alone on the engine",
            ("target",),
            registry=registry,
        )
        for name in Target.__members__:
            self._impossible.labels(name)
        self._ratio = Histogram(
            "headrace_prediction_ratio",
            "Output that was predicted at arrival over the real one",
            buckets=RATIO_BUCKETS,
            registry=registry,
        )
        self._violations = Counter(
            "headrace_itl_violations",
            "Gaps between two tokens that exceeded the TPOT target",
            registry=registry,
        )

    def add(self, requests: Iterable[FinishedRequest]) -> None:
        """Count requests that finished."""
        for request in requests:
            self._add(request)

    def _add(self, request: FinishedRequest) -> None:
        self._ttft.observe(request.ttft)
        self._e2e.observe(request.e2e)
        self._queue.observe(request.queue_time)
        self._prompt.observe(request.prompt_tokens)
        self._output.observe(request.output_tokens)
        if request.output_tokens > 1:
            self._tpot.observe(request.tpot)
            self._max_itl.observe(request.max_itl)
        self._violations.inc(request.itl_violations)
        if request.predicted_tokens and request.output_tokens:
            self._ratio.observe(request.predicted_tokens / request.output_tokens)
        setter = SETTERS[bool(request.overridden)]
        for target in Target:
            if request.targets & target:
                self._count(str(target.name), setter, met=bool(request.met & target))
            if request.impossible & target:
                self._impossible.labels(str(target.name)).inc()
        if request.targets:
            self._count("All", setter, met=not request.targets & ~request.met)

    def _count(self, target: str, setter: str, *, met: bool) -> None:
        self._slo.labels(target, "true" if met else "false", setter).inc()


class EngineMetrics:
    """A prometheus collector over the monitor and the handover."""

    def __init__(self, monitor: Monitor, handover: Handover) -> None:
        self._monitor = monitor
        self._handover = handover

    def collect(self) -> Iterator[Metric]:
        """Yield all families, with the numbers of this moment."""
        yield from self._counters()
        yield from self._load()
        yield from self._policy()
        yield from self._engine()

    def _counters(self) -> Iterator[Metric]:
        totals, lost = self._monitor.totals, self._monitor.lost
        yield CounterMetricFamily("headrace_steps", "Scheduler steps", totals.total("step"))
        yield CounterMetricFamily(
            "headrace_requests_arrived", "Requests that arrived", totals.total("arrivals")
        )
        yield CounterMetricFamily(
            "headrace_prompt_tokens_arrived", "Prompt tokens that arrived", totals.total("arrived_tokens")
        )
        yield CounterMetricFamily(
            "headrace_requests_left",
            "Requests that left the engine, aborted ones included",
            totals.total("finishes"),
        )
        yield CounterMetricFamily(
            "headrace_preemptions",
            "Running requests that had to give their KV back",
            totals.total("preemptions"),
        )
        yield CounterMetricFamily(
            "headrace_policy_fallback_steps",
            "Steps planned first come, first served because the policy failed",
            totals.total("fallback_steps"),
        )
        yield CounterMetricFamily(
            "headrace_prediction_failures",
            "Predictions that failed; the mean of recent outputs stood in",
            totals.total("prediction_failures"),
        )
        yield CounterMetricFamily(
            "headrace_predictions_learned",
            "Finished requests that the predictor learned from",
            totals.total("predictions_learned"),
        )
        yield CounterMetricFamily(
            "headrace_ignored_overrides",
            "Targets and hints of clients that were no numbers, out of range or not allowed",
            totals.total("ignored_overrides"),
        )
        yield CounterMetricFamily(
            "headrace_turns", "Turns that the engine took on a GPU that it shares", totals.total("turns")
        )
        yield CounterMetricFamily(
            "headrace_turn_wait_seconds",
            "Seconds that it waited for its turn, with requests to compute",
            totals.total("turn_wait_seconds"),
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
            "Fitted prefill throughput of a full step, in its share of the GPU; 0 while unknown",
            load.prefill_tokens_per_second,
        )
        yield GaugeMetricFamily(
            "headrace_step_seconds",
            "Mean duration of recent steps, with waits for turns; 0 while unknown",
            load.step_seconds,
        )

    def _policy(self) -> Iterator[Metric]:
        record = self._monitor.record
        applied = applied_hash(record)
        info = GaugeMetricFamily("headrace_policy_info", "The policy in force", labels=("policy", "hash"))
        if applied:
            info.add_metric((self._handover.policy_name(applied), applied), 1)
        yield info
        state = GaugeMetricFamily(
            "headrace_policy_state", "Inner state of the policy, see its page", labels=("policy", "what")
        )
        name = self._handover.policy_name(applied)
        for what, value in zip(registry.policy_gauges(name), record.gauges, strict=False):
            state.add_metric((name, what), value)
        yield state
        yield GaugeMetricFamily(
            "headrace_step_budget_tokens", "Most tokens of the step planned last", record.step_tokens
        )
        yield GaugeMetricFamily(
            "headrace_skipped_requests", "Running requests that the step planned last skips", record.skipped
        )
        predictor = GaugeMetricFamily(
            "headrace_predictor_info",
            "Who predicts output lengths; GivenUp: it failed too often, the mean of recent outputs stands in",
            labels=("predictor",),
        )
        predictor.add_metric((prediction_state(record).predictor,), 1)
        yield predictor
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
        code = self._monitor.record.turn_code
        yield _labelled(
            GaugeMetricFamily(
                "headrace_turn_state",
                "1 for how the engine shares its GPU; Alone: it can't reach the turn server",
                labels=("state",),
            ),
            {name: int(code == each) for each, name in TURN_STATES.items()},
        )
        yield CounterMetricFamily("headrace_engine_boots", "Engine starts seen", self._monitor.totals.boots)
        info = GaugeMetricFamily(
            "headrace_engine_info",
            "The engine beside this sidecar",
            labels=("vllm_version", "boot"),
        )
        info.add_metric((engine.vllm_version, engine.boot), 1)
        yield info


def _labelled(family: Metric, values: dict[str, int]) -> Metric:
    for label, value in values.items():
        family.add_metric((label,), value)  # type: ignore[attr-defined]
    return family
