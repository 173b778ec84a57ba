"""Conditions: each situation gives the reason that tells it from the others, and a message with the fix."""

import dataclasses

import pytest
from op_conditions import NOW, OURS, both, conditions, container, told, unscheduled
from op_world import RUNNING, applied, body, observed, pod, report

from headrace_engine.contracts import PredictionState
from headrace_operator.api import Condition, PodReason, Reason
from headrace_operator.decide.observation import SidecarReport
from headrace_operator.decide.service_status import Executed
from headrace_operator.desired.history import RolledBack, history_annotations
from headrace_operator.errors import RefusedError, SpecInvalidError
from headrace_operator.names import INPUTS_HASH


def test_all_is_well():
    seen = both(report(OURS), report(OURS))
    found = conditions(seen)
    states = {kind: (c.status, c.reason) for kind, c in found.items()}
    assert states == {
        "Accepted": ("True", "Valid"),
        "Ready": ("True", "AllReplicasReady"),
        "Reconciling": ("False", "Settled"),
        "Stalled": ("False", "AsExpected"),
        "PolicyApplied": ("True", "Applied"),
        "RoutingReady": ("True", "Routed"),
        "Degraded": ("False", "AsExpected"),
    }
    assert {c.observed_generation for c in found.values()} == {7}
    assert found[Condition.ROUTING_READY].message == "2 Envoys route to 2 ready replicas"
    summary = told(seen)
    assert (summary.replicas, summary.ready_replicas, summary.policy.applied_replicas) == (2, 2, 2)
    assert summary.url == "http://gw/llm/chat/v1"
    assert summary.runtime_version == "example/sidecar:1"


def test_a_pod_that_its_node_gave_up_is_told_of_while_replicas_are_missing():
    evicted = pod("old", ready=False, phase="Failed", reason="Evicted", message="low on ephemeral-storage")
    older = pod("older", ready=False, phase="Failed", reason="Evicted", message="another time")
    evicted["metadata"]["creationTimestamp"] = "2026-01-01T10:00:00Z"
    older["metadata"]["creationTimestamp"] = "2026-01-01T09:00:00Z"
    alone = conditions(observed(body(), [older, evicted]))[Condition.READY]
    assert alone.reason == PodReason.STARTING
    assert alone.message.endswith("old, made 2026-01-01T10:00:00Z, failed: Evicted: low on ephemeral-storage")
    loading = pod("new", ready=False, **container(state=RUNNING))
    again = conditions(observed(body(), [evicted, loading, older]))[Condition.READY]
    assert again.reason == PodReason.LOADING
    assert "low on ephemeral-storage" in again.message


def test_what_was_gone_back_to_is_not_what_the_spec_asks():
    objects = applied(body())
    given_up = history_annotations(None, RolledBack("0" * 16, "correct spec.engine"))
    objects[-1]["metadata"]["annotations"] |= given_up
    found = conditions(observed(body(), [pod("a"), pod("b")], {}, objects))
    assert found[Condition.READY].status == "True"
    assert (found[Condition.RECONCILING].status, found[Condition.RECONCILING].reason) == (
        "False",
        "RolledBack",
    )


def test_a_rollout_that_waits_for_a_node_says_what_lets_it_go_on():
    objects = applied(body())
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    objects[-1]["status"]["conditions"] = [late]
    crashing = pod("old", ready=False, **container(state={"terminated": {"exitCode": 1}}))
    found = conditions(observed(body(), [waiting_for_a_node(objects), crashing], {}, objects))
    for kind in (Condition.RECONCILING, Condition.DEGRADED):
        assert found[kind].reason == Reason.PROGRESS_DEADLINE_EXCEEDED
        assert "new: Insufficient nvidia.com/gpu; " in found[kind].message
        assert "add nodes" in found[kind].message
        assert "spec.disruption.maxUnavailable" in found[kind].message


def test_a_rollout_says_what_keeps_its_pods_while_others_serve():
    objects = applied(body(replicas=1, disruption={"maxSurge": 1, "maxUnavailable": 0}))
    objects[-1]["status"] |= {"replicas": 2, "updatedReplicas": 1}
    found = conditions(observed(body(), [waiting_for_a_node(objects), pod("old")], {}, objects))
    assert found[Condition.READY].status == "True"
    progress = found[Condition.RECONCILING]
    assert (progress.status, progress.reason) == ("True", Reason.ROLLING_OUT), "nothing is scaled"
    assert "1 of 2 pods have the current template; new: Insufficient nvidia.com/gpu" in progress.message


def waiting_for_a_node(objects):
    """A pod of the template that the Deployment among these objects has."""
    waiting = pod("new", ready=False, **unscheduled("Insufficient nvidia.com/gpu"))
    hash_ = objects[-1]["metadata"]["annotations"][INPUTS_HASH]
    waiting["metadata"]["annotations"] = {INPUTS_HASH: hash_}
    return waiting


@pytest.mark.parametrize(
    ("refused", "failure", "status", "reason"),
    [
        (None, "", "True", PodReason.STARTING),
        (None, "403", "True", Reason.RECONCILE_ERROR),
        (SpecInvalidError("spec.slo.tpot: wrong"), "", "False", Reason.NOT_ACCEPTED),
    ],
)
def test_what_is_not_there_yet_is_not_settled(refused, failure, status, reason):
    found = conditions(observed(body(), objects=[]), refused, failure, carried=Executed.NOTHING)
    progress = found[Condition.RECONCILING]
    assert (progress.status, progress.reason) == (status, reason)


def test_scaled_to_zero():
    assert conditions(observed(body(replicas=0)))[Condition.READY].reason == Reason.SCALED_TO_ZERO


def test_pods_that_are_refused():
    objects = applied(body())
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    objects[-1]["status"]["conditions"] = [failure]
    ready = conditions(observed(body(), objects=objects))[Condition.READY]
    assert (ready.reason, "exceeded quota" in ready.message) == (Reason.PODS_NOT_CREATED, True)


@pytest.mark.parametrize(
    ("engine", "state", "reason"),
    [
        (report("0" * 16), "False", Reason.PENDING),
        (
            report("", state="Stock", reason="vLLM 0.99 is newer than 0.32"),
            "False",
            Reason.ENGINE_VERSION_NOT_SUPPORTED,
        ),
        (report("0" * 16, rejected_hash=OURS, error="alpha: too big"), "False", Reason.POLICY_REJECTED),
        (report(OURS, disabled=True), "False", Reason.POLICY_FAILED),
    ],
)
def test_policy_of_one_replica_is_not_in_force(engine, state, reason):
    found = conditions(both(report(OURS), engine))
    assert (found[Condition.POLICY_APPLIED].status, found[Condition.POLICY_APPLIED].reason) == (state, reason)
    assert found[Condition.READY].status == "True"


def test_an_unsupported_engine_is_said_loudly_and_still_serves():
    found = conditions(both(report("", state="Stock", reason="vLLM 0.99 is newer"), report(OURS)))
    assert found[Condition.DEGRADED].reason == Reason.ENGINE_VERSION_NOT_SUPPORTED
    assert "vLLM 0.99 is newer" in found[Condition.POLICY_APPLIED].message
    assert found[Condition.READY].status == "True"


def test_a_hung_engine_degrades_and_its_text_does_not_change_as_time_goes_by():
    engines = (report(OURS, state="Hung", reason=f"no step for {seconds} s") for seconds in (31, 61))
    [found] = {(c.reason, c.message) for c in (conditions(both(e))[Condition.DEGRADED] for e in engines)}
    assert found[0] == Reason.ENGINE_HUNG
    assert "delete the pod" in found[1]


def test_an_engine_that_takes_no_turns_degrades():
    found = conditions(both(report(OURS), report(OURS, without_turns=True)))[Condition.DEGRADED]
    assert (found.status, found.reason) == ("True", Reason.WITHOUT_TURNS)
    assert "turn server" in found.message


def test_without_a_ready_engine_the_policy_is_unknown():
    found = conditions(observed(body()))[Condition.POLICY_APPLIED]
    assert (found.status, found.reason) == ("Unknown", Reason.NO_READY_REPLICAS)


@pytest.mark.parametrize("engine", [report(OURS), report(OURS, disabled=True), report("0" * 16)])
def test_who_begins_to_lead_tells_of_engines_as_before_until_they_were_asked(engine):
    before = told(both(report(OURS), engine)).model_dump(mode="json", by_alias=True)
    now = told(both(report(OURS), SidecarReport()), previous=before, now="2027-01-01T00:00:00Z")
    assert now.model_dump(mode="json", by_alias=True) == before
    failed = conditions(both(report(OURS), SidecarReport(error="refused")), previous=before)
    assert failed[Condition.POLICY_APPLIED].reason == Reason.SIDECAR_UNREACHABLE


def test_a_policy_that_changes_is_pending_before_any_engine_was_asked():
    before = told(both(report(OURS))).model_dump(mode="json", by_alias=True)
    before["policy"]["hash"] = "0" * 16
    assert (
        conditions(both(SidecarReport()), previous=before)[Condition.POLICY_APPLIED].reason == Reason.PENDING
    )


def test_a_replica_more_is_pending_until_it_was_asked():
    before = told(both(report(OURS))).model_dump(mode="json", by_alias=True)
    now = told(both(report(OURS), SidecarReport()), previous=before)
    assert now.policy.applied_replicas == 1
    [applied] = [c for c in now.conditions if c.type == Condition.POLICY_APPLIED]
    assert (applied.status, applied.reason) == ("False", Reason.PENDING)


def test_trouble_that_is_seen_is_told_before_any_engine_was_asked():
    before = told(both(report(OURS))).model_dump(mode="json", by_alias=True)
    found = conditions(both(SidecarReport()), failure="the API server said no", previous=before)
    assert found[Condition.DEGRADED].reason == Reason.RECONCILE_ERROR
    assert found[Condition.POLICY_APPLIED].status == "True"


def test_a_refused_spec_keeps_telling_what_runs():
    refused = SpecInvalidError("spec.slo.tpot: wrong")
    found = conditions(both(report(OURS), report(OURS)), refused)
    assert (found[Condition.ACCEPTED].status, found[Condition.ACCEPTED].reason) == (
        "False",
        Reason.INVALID_SPEC,
    )
    assert "spec.slo.tpot: wrong" in found[Condition.ACCEPTED].message
    assert found[Condition.READY].status == "True"
    for kind in (Condition.READY, Condition.RECONCILING, Condition.DEGRADED):
        assert "the spec as it is now is refused" in found[kind].message
    progress = found[Condition.RECONCILING]
    assert (progress.status, progress.reason) == ("False", Reason.NOT_ACCEPTED)


def test_nothing_is_as_the_spec_asks_while_it_cannot_be_carried_out():
    found = conditions(both(report(OURS), report(OURS)), failure="403", carried=Executed.NOTHING)
    assert found[Condition.RECONCILING].reason == Reason.RECONCILE_ERROR
    assert "as the spec asks" not in " ".join(c.message for c in found.values())


@pytest.mark.parametrize(
    ("engines", "names"),
    [
        ([report(OURS), report(OURS)], "FCFS"),
        ([report(OURS), report("0" * 16)], "FCFS"),
        ([report(OURS, disabled=True)], "FCFS"),
        ([report(OURS), report("", state="Stock")], "FCFS, Stock"),
        ([report("0" * 16, name="LARRY"), report("0" * 16, name="x" * 900)], "LARRY, Unknown"),
        ([SidecarReport()], None),
    ],
)
def test_the_policy_in_force_is_what_engines_run(engines, names):
    assert told(both(*engines)).policy.in_force == names


def test_replicas_that_the_spec_asks_for_are_told_beside_those_that_are_there():
    summary = told(both(report(OURS)))
    assert (summary.desired_replicas, summary.replicas, summary.ready_replicas) == (3, 1, 1)


def test_what_is_live_is_told_of_the_generation_that_was_carried_out():
    seen = both(report(OURS), report(OURS))
    before = told(seen).model_dump(mode="json", by_alias=True)
    for condition in before["conditions"]:
        condition["observedGeneration"] = 3
    generations = {
        kind: c.observed_generation
        for kind, c in conditions(seen, previous=before, carried=Executed.NOTHING).items()
    }
    assert generations == {
        "Accepted": 7,
        "Ready": 3,
        "Reconciling": 3,
        "Stalled": 7,
        "PolicyApplied": 3,
        "RoutingReady": 3,
        "Degraded": 7,
    }
    assert conditions(seen, carried=Executed.NOTHING)[Condition.READY].observed_generation == 0


@pytest.mark.parametrize("data", [None, {}, {"policy.json": "{"}, {"policy.json": '{"policy": 1}'}])
def test_an_unreadable_policy_is_no_policy(data):
    objects = applied(body())
    objects[0]["data"] = data
    found = conditions(observed(body(), [pod("a")], objects=objects))[Condition.POLICY_APPLIED]
    assert (found.status, found.reason) == ("Unknown", Reason.NO_READY_REPLICAS)


def test_a_refused_spec_of_which_nothing_runs():
    refused = RefusedError(Reason.MODEL_NAME_CONFLICT, "spec.model.servedName: taken")
    found = conditions(observed(body(), objects=[]), refused)
    assert found[Condition.READY].reason == Reason.NOT_ACCEPTED
    assert found[Condition.ROUTING_READY].status == "False"


def test_a_predictor_that_was_given_up_is_degraded():
    failed = report(OURS)
    status = dataclasses.replace(failed.status, prediction=PredictionState("GivenUp", failures=20))
    found = conditions(both(dataclasses.replace(failed, status=status)))[Condition.DEGRADED]
    assert (found.status, found.reason) == ("True", Reason.PREDICTOR_FAILED)
    assert "spec.prediction.predictor" in found.message


def test_a_failed_reconcile_is_degraded():
    found = conditions(both(report(OURS)), failure="the API server cannot be reached")
    assert found[Condition.DEGRADED].reason == Reason.RECONCILE_ERROR


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"observedGeneration": 0}, Reason.ROLLING_OUT),
        ({"updatedReplicas": 1}, Reason.ROLLING_OUT),
        ({"readyReplicas": 1}, PodReason.STARTING),
        (
            {
                "conditions": [
                    {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
                ]
            },
            Reason.PROGRESS_DEADLINE_EXCEEDED,
        ),
    ],
)
def test_progress_of_a_rollout(change, reason):
    objects = applied(body())
    objects[-1]["status"] |= change
    seen = observed(body(), [pod("a"), pod("b")], objects=objects)
    assert conditions(seen)[Condition.RECONCILING].reason == reason


def test_progress_of_pods_that_are_missing_or_loading():
    assert conditions(observed(body(), [pod("a")]))[Condition.RECONCILING].reason == Reason.SCALING
    starting = observed(body(), [pod("a"), pod("b", ready=False)])
    assert conditions(starting)[Condition.RECONCILING].reason == PodReason.STARTING


@pytest.mark.parametrize(("generation", "status"), [(7, "False"), (6, "True")])
def test_a_change_waits_while_its_service_is_paused(generation, status):
    seen = both(report(OURS), report(OURS))
    before = told(seen).model_dump(mode="json", by_alias=True)
    for condition in before["conditions"]:
        condition["observedGeneration"] = generation
    found = conditions(seen, previous=before, paused=True, carried=Executed.NOTHING)[Condition.RECONCILING]
    assert (found.status, found.reason) == (status, Reason.PAUSED)


def test_terminating_and_finished_pods_do_not_count():
    leaving = pod("leaving")
    leaving["metadata"]["deletionTimestamp"] = NOW
    summary = told(observed(body(), [leaving, pod("failed", phase="Failed"), pod("a")]))
    assert (summary.replicas, summary.ready_replicas) == (1, 1)


def test_transition_time_moves_with_the_status_only():
    first = told(both(report(OURS), report(OURS))).model_dump(mode="json", by_alias=True)
    later = conditions(both(report("0" * 16), report(OURS)), previous=first, now="2026-01-03T00:00:00Z")
    assert later[Condition.READY].last_transition_time == NOW
    assert later[Condition.POLICY_APPLIED].last_transition_time == "2026-01-03T00:00:00Z"
