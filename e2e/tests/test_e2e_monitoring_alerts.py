"""promtool tries every alert on made-up series: it fires when it should, says what, and is quiet before."""

import subprocess
from dataclasses import dataclass

import pytest
import yaml

from e2e.cluster import packages
from e2e.monitoring import queries

# In the tier that installs Prometheus.
pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

CHAT = {"namespace": "llm", "service": "chat"}
ENGINE = {"namespace": "llm", "pod": "chat-0"}
POOL = {"namespace": "llm", "pool": "shared"}
CRITICAL, WARNING = "critical", "warning"


@dataclass(frozen=True)
class Case:
    """`series` (as promtool writes them) make the alert fire `after` minutes, and not yet at `before`."""

    alert: str
    series: dict[str, str]
    labels: dict[str, str]
    severity: str
    summary: str
    after: int
    before: int


def series(name, values="0+0x99", **labels):
    inner = ", ".join(f'{key}="{value}"' for key, value in labels.items())
    return {f"{name}{{{inner}}}": values}


def condition(kind, value, reason):
    return series("headrace_service_condition", f"{value}+0x99", **CHAT, condition=kind, reason=reason)


def pool_condition(kind, reason):
    return series("headrace_pool_condition", **POOL, condition=kind, reason=reason)


def told(kind, reason):
    return {**CHAT, "condition": kind, "reason": reason}


ENGINES, SLO = "headrace_gateway_engines", "headrace_slo_requests_total"
ANSWERS = "envoy_cluster_upstream_rq_xx"
ANSWERED = series(ANSWERS, "0+540x99", **CHAT, envoy_response_code_class="2")
CASES = [
    Case(
        "HeadraceServiceDown",
        series(ENGINES, **CHAT, state="reporting") | series(ENGINES, **CHAT, state="silent"),
        CHAT, CRITICAL, "llm/chat: no engine is ready, requests get 503", 6, 4,
    ),
    Case(
        "HeadraceServiceNotReady",
        condition("Ready", 0, "Unschedulable"),
        told("Ready", "Unschedulable"), WARNING, "llm/chat: replicas are missing (Unschedulable)", 21, 19,
    ),
    Case(
        "HeadraceSpecRefused",
        condition("Accepted", 0, "InvalidSpec"),
        told("Accepted", "InvalidSpec"), WARNING,
        "llm/chat: the spec cannot be carried out (InvalidSpec), what runs is older", 6, 4,
    ),
    Case(
        "HeadracePolicyNotApplied",
        condition("PolicyApplied", 0, "PolicyFailed"),
        told("PolicyApplied", "PolicyFailed"), WARNING,
        "llm/chat: engines do not schedule as the spec says (PolicyFailed)", 6, 4,
    ),
    Case(
        "HeadraceServiceDegraded",
        condition("Degraded", 1, "EngineHung"),
        told("Degraded", "EngineHung"), WARNING, "llm/chat works worse than it should (EngineHung)", 6, 4,
    ),
    Case(
        "HeadraceTargetsMissed",
        series(SLO, "0+30x99", **CHAT, target="All", met="true", pod="chat-0")
        | series(SLO, "0+10x99", **CHAT, target="All", met="false", pod="chat-0"),
        CHAT, WARNING, "llm/chat: only 75% of requests meet their targets", 22, 8,
    ),
    Case(
        "HeadraceEngineHung",
        series("headrace_engine_state", "1+0x99", **ENGINE, state="Hung"),
        {**ENGINE, "state": "Hung"}, CRITICAL, "llm/chat-0 holds requests and makes no step", 3, 1,
    ),
    Case(
        "HeadraceEngineRestarts",
        series("headrace_engine_boots_total", "1x60 2x15 3x15 4x15 5x90", **ENGINE),
        ENGINE, WARNING, "The engine in llm/chat-0 was started 4 times in an hour", 110, 60,
    ),
    Case(
        "HeadracePolicyFallback",
        series("headrace_policy_fallback_steps_total", "0+60x99", **ENGINE)
        | series("headrace_steps_total", "0+1200x99", **ENGINE),
        ENGINE, WARNING, "llm/chat-0: 5% of steps are planned FCFS because the policy fails", 22, 8,
    ),
    Case(
        "HeadraceGatewayErrors",
        ANSWERED | series(ANSWERS, "0+60x99", **CHAT, envoy_response_code_class="5"),
        CHAT, CRITICAL, "llm/chat: 10% of answers are 5xx", 12, 4,
    ),
    Case(
        "HeadraceRequestsRefused",
        series("headrace_gateway_refusals_total", "0+60x99", **CHAT, code="overloaded")
        | series("headrace_gateway_picks_total", "0+240x99", **CHAT, balancer="SAL"),
        CHAT, WARNING, "llm/chat: 20% of requests get 429", 22, 8,
    ),
    Case(
        "HeadracePickerAway",
        series("headrace_gateway_leader", "0+0x99", pod="picker-0"),
        {}, WARNING,
        "No picker answers: Envoy balances by least requests, and maxQueue is not enforced", 6, 4,
    ),
    Case(
        "HeadracePickerSkipped",
        ANSWERED | series("envoy_cluster_ext_authz_failure_mode_allowed", "0+54x99", **CHAT),
        CHAT, WARNING, "llm/chat: Envoy sent 10% of requests on without the picker", 12, 4,
    ),
    Case(
        "HeadraceEngineSilent",
        series(ENGINES, "2+0x99", **CHAT, state="silent"),
        {**CHAT, "state": "silent"}, WARNING,
        "llm/chat: 2 ready engines tell the picker nothing of their load", 6, 4,
    ),
    Case(
        "HeadraceGatewayDown",
        series("headrace_gateway_envoys", pod="picker-0"),
        {}, CRITICAL, "No Envoy asks the picker for its configuration", 6, 4,
    ),
    Case(
        "HeadraceGatewayConfigRefused",
        series("headrace_gateway_ads_refusals_total", "0x20 1x99", pod="picker-0", type="Cluster"),
        {"pod": "picker-0"}, WARNING,
        "The gateway did not take a configuration; it keeps the one before", 25, 19,
    ),
    Case(
        "HeadracePoolRefused",
        pool_condition("Accepted", "MemberTaken"),
        {**POOL, "condition": "Accepted", "reason": "MemberTaken"}, WARNING,
        "llm/shared: the pool cannot be as its spec says (MemberTaken)", 6, 4,
    ),
    Case(
        "HeadracePoolWithoutTurns",
        pool_condition("Ready", "TurnServerNotReady"),
        {**POOL, "condition": "Ready", "reason": "TurnServerNotReady"}, WARNING,
        "llm/shared: a group takes no turns (TurnServerNotReady)", 11, 9,
    ),
    Case(
        "HeadracePoolNotPlanned",
        pool_condition("AsPlanned", "MoveBlocked") | pool_condition("Planned", "NoTraffic"),
        {**POOL, "condition": "AsPlanned", "reason": "MoveBlocked"}, WARNING,
        "llm/shared: services are not where a plan has them (MoveBlocked)", 31, 29,
    ),
    Case(
        "HeadraceOperatorAway",
        series("headrace_operator_leader", "1x20 0x99", pod="operator-0"),
        {}, WARNING, "No operator holds the Lease: services run on, changes of specs wait", 32, 29,
    ),
    Case(
        "HeadraceOperatorErrors",
        series("headrace_operator_reconcile_seconds_count", "0+1x99", result="api_error"),
        {}, WARNING, "Reconciles have been failing for a quarter of an hour", 18, 14,
    ),
    Case(
        "HeadraceOperatorBehind",
        series("headrace_operator_queue_age_seconds", "90+0x99"),
        {}, WARNING, "A service has been waiting for 1m 30s to be looked at", 11, 9,
    ),
    Case(
        "HeadraceOperatorQuarrel",
        series("headrace_operator_actions_total", "0+30x99", action="apply", kind="Deployment"),
        {"kind": "Deployment"}, WARNING,
        "The operator keeps rewriting objects of kind Deployment: somebody else changes them", 32, 14,
    ),
]  # fmt: skip
# Looks alike, and nothing is wrong.
QUIET = {
    "HeadraceServiceDown": series(ENGINES, **CHAT, state="reporting") | condition("Ready", 0, "ScaledToZero"),
    "HeadraceServiceNotReady": condition("Ready", 0, "ScaledToZero"),
    "HeadracePolicyNotApplied": condition("PolicyApplied", -1, "NoReadyReplicas"),
    "HeadraceTargetsMissed": series(SLO, "0+1x99", **CHAT, target="All", met="false"),  # one a minute
    "HeadraceEngineRestarts": series("headrace_engine_boots_total", "1x30 2x69", **ENGINE),
    "HeadracePickerAway": series("headrace_gateway_leader", "1+0x99", pod="a")
    | series("headrace_gateway_leader", "0+0x99", pod="b"),
    "HeadraceOperatorErrors": series(
        "headrace_operator_reconcile_seconds_count", "0+9x99", result="conflict"
    ),
}


def promtool(tmp_path, tests):
    document = {"rule_files": [str(queries.RULES)], "evaluation_interval": "1m", "tests": tests}
    path = tmp_path / "alerts.yaml"
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [packages.path("promtool"), "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def trial(alert, given, minute, expected):
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in given.items()],
        "alert_rule_test": [{"alertname": alert, "eval_time": f"{minute}m", "exp_alerts": expected}],
    }


def test_every_alert_fires_when_it_should_and_not_before(tmp_path):
    assert {case.alert for case in CASES} == {rule["alert"] for rule in queries.alerts()}
    trials = []
    for case in CASES:
        expected = {
            "exp_labels": {**case.labels, "severity": case.severity},
            "exp_annotations": {
                "summary": case.summary,
                "runbook": f"docs/troubleshooting.md#{case.alert.lower()}",
            },
        }
        trials.append(trial(case.alert, case.series, case.after, [expected]))
        trials.append(trial(case.alert, case.series, case.before, []))
    promtool(tmp_path, trials)


def test_what_only_looks_wrong_is_no_alert(tmp_path):
    promtool(tmp_path, [trial(alert, given, 90, []) for alert, given in QUIET.items()])


def test_promtool_finds_nothing_wrong_with_the_rules():
    done = subprocess.run(
        [packages.path("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(queries.RULES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
