"""Rollouts: when one has failed, what is gone back to, and that it is not tried again."""

import json
from dataclasses import replace

import pytest
from op_golden import SETTINGS
from op_world import applied, body, observed, pod

from headrace_operator import names
from headrace_operator.api import parse_service
from headrace_operator.decide.observation import observe
from headrace_operator.decide.rollout import assess_rollout, service_as_served
from headrace_operator.desired import desired_objects
from headrace_operator.desired.history import last_ready, rolled_back

ENGINE = {"image": "example/vllm:2", "args": ["--no-such-option"]}


def live_of(objects, **status):
    [live] = [item for item in objects if item["kind"] == "Deployment"]
    live["status"] |= status
    return live


GRACE = live_of(applied(body()))["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def engine_pod(name, live, restarts=0, ready=False, **state):
    """A pod of the live template."""
    told = {"name": "engine", "restartCount": restarts, "started": ready, "state": {}, **state}
    made = pod(name, ready=ready, containerStatuses=[told])
    made["metadata"]["annotations"] = dict(live["spec"]["template"]["metadata"]["annotations"])
    return made


def crashing(name, live, restarts=3):
    ended = {"exitCode": 1, "reason": "Error", "message": "ValueError: no such option"}
    return engine_pod(name, live, restarts, lastState={"terminated": ended})


def carry_on(raw, live, pods=()):
    """The Deployment after one pass, as the API server would return it."""
    service = parse_service(raw)
    carried, progress = assess_rollout(service, live, observe([live], pods, {}))
    [after] = [d for d in desired_objects(carried, SETTINGS, (), live, progress) if d["kind"] == "Deployment"]
    after["metadata"] |= {"uid": "d", "generation": live["metadata"]["generation"] + 1}
    count = after["spec"]["replicas"]
    after["status"] = {"observedGeneration": after["metadata"]["generation"], "replicas": count}
    return after


def served(raw=None, loaded=40):
    """A Deployment whose replicas were all ready, `loaded` seconds after their start."""
    raw = raw or body()
    live = live_of(applied(raw), readyReplicas=2)
    pods = [engine_pod(name, live, ready=True) for name in ("a", "b")]
    for each in pods:
        each["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        each["status"]["conditions"][1]["lastTransitionTime"] = f"2026-01-01T00:00:{loaded:02}Z"
    return carry_on(raw, live, pods)


def test_what_all_replicas_are_ready_with_is_remembered():
    live = served()
    ready = last_ready(live)
    assert ready.template == live["spec"]["template"]
    assert ready.runtime == SETTINGS.sidecar_image
    assert ready.load_seconds == 40


@pytest.mark.parametrize(
    "status",
    [{"readyReplicas": 1}, {"readyReplicas": 2, "updatedReplicas": 1}, {"readyReplicas": 2, "replicas": 3}],
)
def test_a_rollout_that_is_not_over_is_not_remembered(status):
    live = live_of(applied(body()), **status)
    assert last_ready(carry_on(body(), live)) is None


def test_a_crashing_rollout_goes_back_and_says_what_to_change():
    changed = body(engine=ENGINE)
    before = served()
    live = carry_on(changed, before)
    assert live["spec"]["template"] != before["spec"]["template"]
    after = carry_on(changed, live, [crashing("new", live)])
    assert after["spec"]["template"] == before["spec"]["template"]
    told = rolled_back(after).message
    assert "generation 1 failed" in told
    assert "ValueError: no such option" in told
    assert "correct spec.engine:" in told


def test_who_was_moved_there_by_a_pool_is_not_told_to_correct_the_spec():
    changed = body(engine=ENGINE)
    live = carry_on(changed, served())
    moved = replace(parse_service(changed), placed_replicas=2)
    _, progress = assess_rollout(moved, live, observe([live], [crashing("new", live)], {}))
    assert "its GPUPool or you chose spec.engine:" in progress.rolled_back.message


def test_it_is_not_tried_again_until_its_inputs_change():
    changed = body(engine=ENGINE)
    live = carry_on(changed, served())
    live = carry_on(changed, live, [crashing("new", live)])
    for spec in ({}, {"replicas": 5}, {"scheduling": {"policy": "LARRY"}}, {"slo": {"e2e": "9s"}}):
        again = carry_on(body(engine=ENGINE, **spec), live)
        assert again["spec"]["template"] == live["spec"]["template"]
        assert rolled_back(again) == rolled_back(live)
        assert again["spec"]["replicas"] == spec.get("replicas", 2)
    corrected = carry_on(body(engine={"image": "example/vllm:3"}), live)
    assert rolled_back(corrected) is None
    assert corrected["spec"]["template"]["spec"]["containers"][0]["image"] == "example/vllm:3"
    withdrawn = carry_on(body(), live)
    assert rolled_back(withdrawn) is None
    assert withdrawn["spec"]["template"] == live["spec"]["template"]


def test_what_was_gone_back_to_and_crashes_too_stays():
    changed = body(engine=ENGINE)
    live = carry_on(changed, served())
    live = carry_on(changed, live, [crashing("new", live)])
    again = carry_on(changed, live, [crashing("old", live)])
    assert again["spec"]["template"] == live["spec"]["template"]
    assert rolled_back(again) == rolled_back(live)


@pytest.mark.parametrize(
    "pods",
    [
        lambda live: [crashing("new", live, restarts=2)],
        lambda live: [crashing("new", live), engine_pod("other", live, ready=True)],
        lambda live: [engine_pod("new", live, 3, state={"waiting": {"reason": "ImagePullBackOff"}})],
        lambda _: [crashing("old", live_of(applied(body())))],
    ],
    ids=["too early", "another serves", "no crash", "an old pod"],
)
def test_a_rollout_that_may_still_succeed_goes_on(pods):
    changed = body(engine=ENGINE)
    live = carry_on(changed, served())
    after = carry_on(changed, live, pods(live))
    assert after["spec"]["template"] == live["spec"]["template"]
    assert rolled_back(after) is None


def test_one_that_makes_no_progress_for_its_deadline_goes_back():
    changed = body(engine=ENGINE)
    live = carry_on(changed, served())
    timed_out = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    live["status"]["conditions"] = [timed_out]
    waiting = engine_pod("new", live, state={"waiting": {"reason": "ImagePullBackOff"}})
    after = carry_on(changed, live, [waiting])
    told = rolled_back(after).message
    assert f"no new pod became ready within {800 + GRACE} s; new: container engine" in told
    assert rolled_back(carry_on(changed, {**live, "status": {"conditions": [timed_out]}})) is None  # stale


TIMED_OUT = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
NO_NODE = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient nvidia.com/gpu"}


def homeless(name, live):
    made = engine_pod(name, live)
    made["status"]["conditions"][0] = NO_NODE
    return made


@pytest.mark.parametrize(
    ("spec", "pods", "back"),
    [
        ({"engine": ENGINE}, lambda live: [homeless("a", live)], False),
        ({"engine": ENGINE}, lambda live: [homeless("a", live), engine_pod("b", live)], True),
        ({"engine": ENGINE}, lambda live: [engine_pod("a", live), engine_pod("b", live, ready=True)], False),
        ({"engine": ENGINE}, lambda _: [], True),
        ({"podTemplate": {"nodeSelector": {"gpu": "b200"}}}, lambda live: [homeless("a", live)], True),
        ({"accelerator": {"type": "GPU"}}, lambda live: [homeless("a", live)], True),
    ],
    ids=["no node", "one has a node", "one serves", "no pod", "other nodes", "other devices"],
)
def test_a_spec_is_not_given_up_for_want_of_a_node_that_it_did_not_ask_for(spec, pods, back):
    changed = body(**spec)
    live = carry_on(changed, served())
    live["status"]["conditions"] = [TIMED_OUT]
    assert bool(rolled_back(carry_on(changed, live, pods(live)))) == back


def test_the_progress_deadline_follows_the_load_time_of_the_same_model():
    assert live_of(applied(body()))["spec"]["progressDeadlineSeconds"] == 4200 + GRACE
    live = served(loaded=40)
    assert live["spec"]["progressDeadlineSeconds"] == 800 + GRACE
    other_image = carry_on(body(engine=ENGINE), live)
    assert other_image["spec"]["progressDeadlineSeconds"] == 800 + GRACE
    other_model = carry_on(body(model={"source": "hf://a/larger"}), live)
    assert other_model["spec"]["progressDeadlineSeconds"] == 4200 + GRACE


def test_a_pod_may_wait_for_one_that_drains():
    longest = {"disruption": {"drainTimeout": "30m"}}
    loaded = served(body(**longest), loaded=40)
    before = loaded["spec"]["progressDeadlineSeconds"]
    assert before - 800 == loaded["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 1800
    shorter = carry_on(body(disruption={"drainTimeout": "1m"}), loaded)
    assert shorter["spec"]["progressDeadlineSeconds"] == before
    endless = live_of(applied(body(disruption={"drainTimeout": "999999h"})))
    assert endless["spec"]["progressDeadlineSeconds"] < 2**31


def test_until_all_pods_answer_to_a_new_name_the_service_goes_by_the_old_one():
    old, new = (body(model={"source": "hf://a/b", "servedName": name}) for name in ("old", "new"))
    live = served(old)
    assert service_as_served(parse_service(new), live).served_name == "old"
    rolling = carry_on(new, live)
    assert service_as_served(parse_service(new), rolling).served_name == "old"
    done = served(new)
    assert service_as_served(parse_service(new), done).served_name == "new"
    assert service_as_served(parse_service(new), live_of(applied(new))).served_name == "new"


def test_devices_go_back_with_the_template():
    gpu = {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}
    two = {"image": "example/vllm:1", "tensorParallelSize": 2}
    before = body(accelerator=gpu, engine=two)
    after = body()
    live = carry_on(after, served(before))
    carried, progress = assess_rollout(
        parse_service(after), live, observe([live], [crashing("new", live)], {})
    )
    assert carried.uses_dra
    assert carried.spec.engine.tensor_parallel_size == 2
    assert progress.rolled_back is not None


@pytest.mark.parametrize("text", ["", "{", '{"inputs": "x"}', "[]"])
def test_an_unreadable_memory_is_none(text):
    live = live_of(applied(body()))
    live["metadata"]["annotations"] |= {names.LAST_READY: text, names.ROLLED_BACK: text}
    assert last_ready(live) is None
    assert rolled_back(live) is None
    assert assess_rollout(parse_service(body()), live, observed(body()))[0] == parse_service(body())


def test_a_memory_of_inputs_that_this_release_does_not_know_is_not_used():
    changed = body(engine=ENGINE)
    live = carry_on(changed, served())
    memory = json.loads(live["metadata"]["annotations"][names.LAST_READY])
    memory["spec"]["engine"] = {"image": 7}
    live["metadata"]["annotations"][names.LAST_READY] = json.dumps(memory)
    after = carry_on(changed, live, [crashing("new", live)])
    assert after["spec"]["template"] == live["spec"]["template"]


def test_a_template_too_large_for_an_annotation_is_not_remembered():
    args = [f"--option-{n}={'x' * 1000}" for n in range(60)]
    assert last_ready(served(body(engine={"image": "example/vllm:1", "args": args}))) is None
