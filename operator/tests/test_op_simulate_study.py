"""What is compared, what is recommended, how many replicas are enough."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_world import body

from headrace_engine.contracts import Prediction, Slo
from headrace_engine.policies import registry
from headrace_operator.api import parse_service
from headrace_operator.simulate import document, targets
from headrace_operator.simulate.candidates import list_candidates, make_patch, patch_command
from headrace_operator.simulate.figures import Figures, Spread, find_best
from headrace_operator.simulate.intervals import DRAWS, REPLICA_DRAWS
from headrace_operator.simulate.replicas import find_fewest
from headrace_operator.simulate.study import run_study

BASE = Figures(
    requests=100,
    refused=0,
    ttft=Spread(1, 1, 2, 3),
    tpot=Spread(0.02, 0.02, 0.03, 0.04),
    e2e=Spread(10, 9, 20, 30),
    longest_wait=4.0,
    preemptions=0,
    met={"ttft": 0.8, "all": 0.8},
)


def figures(met=0.8, e2e=10.0, wait=4.0):
    return dataclasses.replace(BASE, met={"all": met}, e2e=Spread(e2e, e2e, e2e, e2e), longest_wait=wait)


def compared(engine_tokens=8192, **scheduling):
    return list_candidates(parse_service(body(scheduling=scheduling)), engine_tokens)


def test_each_policy_with_each_step_budget():
    found = compared(policy="FCFS")
    assert [each.name for each in found] == [
        f"{policy}, {budget}"
        for policy in registry.policy_names()
        for budget in ("8192", "SLO", "2048", "1024")
    ]
    assert [each.name for each in found if each.current] == ["FCFS, 8192"]
    for each in found:
        registry.validate_document(each.document)


@pytest.mark.parametrize(
    ("policy", "now"), [("AccelGen", "AccelGen, SLO"), ("EconoServe", "EconoServe, 8192")]
)
def test_a_policys_own_step_budget_is_marked_as_what_it_is(policy, now):
    assert [each.name for each in compared(policy=policy) if each.current] == [now]


def test_engines_schedule_by_the_services_targets_and_lengths_predicted_as_it_asks():
    raw = body(slo={"ttft": "1s", "e2eScalePercent": 200}, prediction={"predictor": "Learned"})
    for each in list_candidates(parse_service(raw), 8192):
        assert each.simulated.slo == each.document.slo == Slo(ttft_ms=1000, e2e_scale_percent=200)
        assert each.document.prediction == Prediction("Learned")
        assert each.simulated.prediction == Prediction("Quantile")  # a trace has no prompts to learn from
    raw = body(prediction={"predictor": "Quantile", "quantilePercent": 70})
    assert {
        each.simulated.prediction.quantile_percent for each in list_candidates(parse_service(raw), 8192)
    } == {70}


def test_a_fixed_budget_of_the_engines_own_is_no_other():
    assert len(compared(2048, policy="FCFS")) == 15
    found = compared(2048, policy="LARRY", stepBudget={"mode": "Fixed", "tokens": 4096})
    assert [each.name for each in found if each.current] == ["LARRY, 2048"]


def test_a_budget_that_a_target_decides_is_another():
    raw = body(slo={"tpot": "50ms"}, scheduling={"policy": "LARRY", "stepBudget": {"mode": "SLO"}})
    [now] = [each for each in list_candidates(parse_service(raw), 8192) if each.current]
    assert now.in_words == "LARRY, as many tokens per step as the targets allow"


def test_a_scaled_target_is_shown_as_what_it_is():
    service = parse_service(body(slo={"ttft": "1s", "e2eScalePercent": 250, "perRequest": {"enabled": True}}))
    slo, assumed = targets.choose_targets(service)
    assert (targets.format_targets(slo), assumed) == ("TTFT 1 s, E2E 2.5 x alone", False)
    assert targets.choose_targets(parse_service(body(slo={"perRequest": {"enabled": True}})))[1]


def test_the_services_own_settings_come_first():
    found = compared(policy="LARRY", larry={"alpha": 77}, stepBudget={"mode": "Fixed", "tokens": 512})
    assert len(found) == 21
    assert (found[0].name, found[0].current) == ("LARRY (alpha 77), 512", True)


def test_the_patch_asks_for_the_candidate_and_nothing_else():
    raw = body(scheduling={"policy": "FCFS", "larry": {"alpha": 77}})
    service = parse_service(raw)
    for each in list_candidates(service, 8192):
        change = make_patch(service, each)["spec"]["scheduling"]
        merged = {**raw["spec"]["scheduling"], **change}
        raw_after = body(scheduling={key: value for key, value in merged.items() if value is not None})
        after = list_candidates(parse_service(raw_after), 8192)
        assert [other.name for other in after if other.current] == [each.name]
    assert patch_command(service, {"a": None}) == (
        "kubectl patch llmservice chat -n llm --type merge -p '{\"a\": null}'"
    )


def test_every_patch_has_fields_of_the_api_only():
    service = parse_service(
        body(scheduling={"policy": "LARRY", "larry": {"alpha": 77}, "accelGen": {"gamma": 1}})
    )
    patches = [make_patch(service, each)["spec"] for each in list_candidates(service, 8192)]
    assert {"larry", "accelGen"} <= {key for each in patches for key in each["scheduling"]}
    assert not [found for each in patches for found in document._unknown(each, document._schema(), "spec")]


@pytest.mark.parametrize(
    ("others", "winner"),
    [
        ([figures(met=0.805, e2e=9.8)], 0),  # no more than the simulator's own error
        ([figures(met=0.9, e2e=12)], 1),
        ([figures(met=0.795, e2e=7)], 1),
        ([figures(met=0.7, e2e=5)], 0),
        ([figures(met=0.9, e2e=9), figures(met=0.895, e2e=8)], 2),
        ([figures(met=0.807, e2e=9.8), figures(met=0.815, e2e=9.9)], 2),  # the first is not worth it
        ([figures(met=0.99, wait=9)], 0),  # someone starves
        ([figures(met=0.99, wait=7)], 1),
        ([dataclasses.replace(BASE, e2e=None, met={"all": 0.0})], 0),
    ],
)
def test_the_recommended_one(others, winner):
    assert find_best([figures(), *others], 0) == winner


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 8))
def test_the_fewest_replicas_are_found(needed, first, most, at_once):
    tried = []

    def enough(numbers):
        assert len(numbers) <= at_once
        tried.extend(numbers)
        return [number >= needed for number in numbers]

    assert find_fewest(enough, first, most, at_once) == (needed if needed <= most else None)
    assert len(set(tried)) == len(tried)
    assert max(tried) <= most
    assert max(tried) <= max(first, 2 * needed)


class Simulated:
    """Answers from a function of the job."""

    at_once = 2

    def __init__(self, answer):
        self.answer = answer
        self.jobs = []

    def __call__(self, jobs, what):
        assert what
        self.jobs += jobs
        return [self.answer(job) for job in jobs]


def larry_is_better(job):
    return figures(met=min(1.0, (0.9 if job.policy.policy == "LARRY" else 0.5) * job.replicas / 3))


def study(answer, most=8, off_by=1.0):
    simulate = Simulated(answer)
    off = {"ttft": off_by, "tpot": off_by, "e2e": off_by}
    return run_study(simulate, compared(policy="FCFS"), 2, most, off_by=off, seed=0), simulate


def test_a_study_compares_confirms_and_counts():
    found, simulate = study(larry_is_better)
    assert found.candidates[found.current].name == "FCFS, 8192"
    assert found.candidates[found.recommended].name == "LARRY, 8192"
    assert found.rival.recommended
    assert found.rival.change["met_all"].value == pytest.approx(0.8 * 1 / 3)
    assert found.replicas == found.sure_replicas == 3
    first = simulate.jobs[: len(found.candidates)]
    assert [job.policy for job in first] == [each.document for each in found.candidates]
    assert {job.replicas for job in first} == {2}
    assert len(set(map(str, simulate.jobs))) == len(simulate.jobs)


def test_what_does_not_hold_with_dearer_steps_is_not_recommended():
    def only_if_cheap(job):
        cheap = job.mixed_attention_factor == 1 or job.overhead_seconds == 0
        return larry_is_better(job) if cheap else figures(met=0.5)

    worse = dataclasses.replace(figures(), met={"all": 0.2})
    found, _ = study(only_if_cheap)
    assert found.recommended != found.current  # equal is not worse

    def worse_if_dear(job):
        cheap = job.mixed_attention_factor == 1 or job.overhead_seconds == 0
        return worse if not cheap and job.policy.policy == "LARRY" else larry_is_better(job)

    found, _ = study(worse_if_dear, most=4)
    assert found.recommended == found.current
    assert found.candidates[found.rival.number].name == "LARRY, 8192"
    assert found.rival.refuted_by == "steps"
    assert found.replicas is found.sure_replicas is None


def drawn(job, spread):
    """Give every other draw so much more, every other so much less, of what the trace itself gives."""
    return 0.0 if job.draw is None else spread if job.draw.seed % 2 else -spread


def test_what_other_traffic_may_turn_round_is_not_recommended():
    def uncertain(job):
        better = 0.2 + drawn(job, 0.15) if job.policy.policy == "LARRY" else 0.0
        return figures(met=0.5 + better)

    found, _ = study(uncertain)
    assert found.recommended == found.current
    assert found.rival.refuted_by == "interval"
    assert found.rival.change["met_all"].low < 0 < found.rival.change["met_all"].value


def test_both_settings_meet_the_same_draws():
    found, simulate = study(larry_is_better, off_by=1.3)
    draws = {
        policy: [job.draw for job in simulate.jobs if job.policy.policy == policy and job.replicas == 2]
        for policy in ("FCFS", "LARRY")
    }
    assert [each for each in draws["FCFS"] if each] == [each for each in draws["LARRY"] if each]
    assert len({job.draw.step_factor for job in simulate.jobs if job.draw}) > DRAWS - 2
    assert found.now["e2e_mean"].high == pytest.approx(13.0)  # the known error alone


def test_replicas_are_enough_at_the_low_end_too():
    def uncertain(job):
        return figures(met=min(1.0, 0.31 * job.replicas) + drawn(job, 0.1))

    found, simulate = study(uncertain)
    assert found.rival is None
    assert (found.replicas, found.sure_replicas) == (3, None)

    def less_with_more(job):
        return figures(met=min(1.0, 0.31 * job.replicas) + drawn(job, 0.3 / job.replicas**2))

    found, simulate = study(less_with_more)
    assert (found.replicas, found.sure_replicas) == (3, 4)
    tried = [job.replicas for job in simulate.jobs if job.draw and job.replicas != 2]
    assert max(tried.count(number) for number in tried) == REPLICA_DRAWS
