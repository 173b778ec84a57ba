"""Parsing at the door: typed specs, and refusals that name the field and the fix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_world import body

from headrace_engine.contracts import PerRequest, Slice
from headrace_engine.policies import registry
from headrace_operator.api import Key, parse_service, policy_document
from headrace_operator.api.base import milliseconds
from headrace_operator.api.reserved import ARGUMENTS, find_reserved_argument
from headrace_operator.api.serving import block_name
from headrace_operator.errors import SpecInvalidError


def refusal(raw):
    with pytest.raises(SpecInvalidError) as caught:
        parse_service(raw)
    return str(caught.value)


def test_a_minimal_service_has_the_defaults():
    raw = body()
    raw["spec"] = {"model": {"source": "hf://org/name"}, "engine": {"image": "i"}}
    service = parse_service(raw)
    assert service.key == Key("llm", "chat")
    assert service.served_name == "chat"
    assert service.replicas == 1
    assert service.on_gpu
    assert not service.uses_dra
    assert policy_document(service).policy == "FCFS"


@given(st.integers(1, 999_999), st.sampled_from([("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)]))
def test_durations(number, unit):
    assert milliseconds(f"{number}{unit[0]}") == number * unit[1]


@pytest.mark.parametrize(
    "text", ["", "0s", "1", "1d", "1.5s", "-1s", " 1s", "1s ", "1s\n", "1234567s", "5 m"]
)
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="such as 500ms"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"slo": {"ttft": "2m", "e2e": "30s"}}, "slo.ttft must not exceed slo.e2e"),
        ({"slo": {"tpot": "0s"}}, "spec.slo.tpot"),
        ({"model": {"source": "file:///x"}}, "spec.model.source"),
        ({"engine": {"image": "i", "args": ["--port=1"]}}, "--port is reserved"),
        ({"engine": {"image": "i", "env": [{"name": "HF_HOME", "value": "x"}]}}, "HF_HOME is reserved"),
        ({"scheduling": {"policy": "SJF"}}, "spec.scheduling"),
        ({"scheduling": {"policy": "LARRY", "larry": {"alpha": -1}}}, "alpha"),
        (
            {"scheduling": {"policy": "FCFS", "econoServe": {"reservedPercent": -1}}},
            "econoServe.reservedPercent",
        ),
        ({"scheduling": {"stepBudget": {"mode": "Fixed"}}}, "spec.scheduling"),
        ({"scheduling": {"slice": {"patience": "5s"}}}, "spec.scheduling.slice.tokens"),
        ({"scheduling": {"slice": {"tokens": 64, "patience": "soon"}}}, "spec.scheduling.slice.patience"),
        (
            {"engine": {"image": "i", "blockSize": 128}, "scheduling": {"slice": {"tokens": 64}}},
            "slice.tokens must not be below engine.blockSize",
        ),
        (
            {"engine": {"image": "i", "maxModelLen": 4096}, "scheduling": {"slice": {"tokens": 4097}}},
            "slice.tokens must not exceed engine.maxModelLen",
        ),
        ({"slo": {"e2e": "30s", "e2eScalePercent": 200}}, "exclude each other"),
        ({"slo": {"e2eScalePercent": 99}}, "spec.slo.e2eScalePercent"),
        (
            {"podTemplate": {"metadata": {"annotations": {"cdi.k8s.io/gpu": "all"}}}},
            "loosen a container's isolation: remove them",
        ),
        (
            {"podTemplate": {"volumeMounts": [{"name": "x", "mountPath": "/x/../headrace/plugin"}]}},
            "write the path without",
        ),
        ({"podTemplate": {"volumeMounts": [{"name": "x", "mountPath": "//headrace"}]}}, "mountPath"),
    ],
)
def test_objects_stored_under_an_older_crd_are_refused_too(spec, words):
    assert words in refusal(body(**spec))


@pytest.mark.parametrize("flag", ARGUMENTS)
def test_each_reserved_argument_in_each_spelling(flag):
    assert ARGUMENTS[flag] in find_reserved_argument([flag])
    assert ARGUMENTS[flag] in find_reserved_argument(["--seed", f"{flag}=1"])
    assert find_reserved_argument([f"{flag}-other"]) is None
    underscored = "--" + flag.removeprefix("--").replace("-", "_") if flag.startswith("--") else flag
    assert ARGUMENTS[flag] in find_reserved_argument([underscored])


@pytest.mark.parametrize(
    "argument", ["--scheduler-cl=x", "--pipeline_parallel_siz=2", "--data-parallel-rank", "--headles", "--"]
)
def test_beginnings_of_reserved_arguments_are_refused(argument):
    assert "engine.args" in find_reserved_argument([argument])


@pytest.mark.parametrize("argument", ["", "-", "x", "-1", "--enforce-eager", "--max-num-seqs=4", "model"])
def test_other_arguments_and_their_values_are_free(argument):
    assert find_reserved_argument([argument]) is None


def test_stored_settings_of_other_policies_wait():
    larry = policy_document(parse_service(body(scheduling={"policy": "LARRY", "larry": {"alpha": 7}})))
    assert larry.parameters == {"alpha": 7}
    fcfs = policy_document(parse_service(body(scheduling={"policy": "FCFS", "larry": {"alpha": 7}})))
    assert fcfs.parameters == {}


@pytest.mark.parametrize("variant", ["General", "Full", 5, None])
@pytest.mark.parametrize("policy", ["EconoServe", "AccelGen", "FCFS"])
def test_settings_that_an_older_crd_stored_and_none_has_now_change_nothing(policy, variant):
    kept = {"econoServe": {"reservedPercent": 5}, "accelGen": {"gamma": 500}}
    old = {
        "econoServe": {"variant": variant, "order": "ThreeKeys", "bufferPercent": 999} | kept["econoServe"],
        "accelGen": {"skipping": True, "exclusive": variant} | kept["accelGen"],
    }
    before, after = (parse_service(body(scheduling={"policy": policy, **blocks})) for blocks in (old, kept))
    assert policy_document(before) == policy_document(after)


def test_tokens_apply_with_a_fixed_budget_only():
    kept = parse_service(body(scheduling={"policy": "FCFS", "stepBudget": {"mode": "Engine", "tokens": 9}}))
    assert policy_document(kept).step_budget.tokens is None
    used = parse_service(body(scheduling={"policy": "FCFS", "stepBudget": {"mode": "Fixed", "tokens": 9}}))
    assert policy_document(used).step_budget.tokens == 9


@pytest.mark.parametrize("policy", registry.policy_names())
def test_slices_go_with_any_policy_and_are_off_unless_asked_for(policy):
    assert policy_document(parse_service(body(scheduling={"policy": policy}))).slice is None
    engine = {"image": "i", "blockSize": 64, "maxModelLen": 64}
    asked = parse_service(body(engine=engine, scheduling={"policy": policy, "slice": {"tokens": 64}}))
    assert policy_document(asked).slice == Slice(64, 30_000)


@pytest.mark.parametrize("rebalance", ["Auto", "Never"])
def test_engines_hand_back_who_steps_back_where_streams_may_move(rebalance):
    asked = body(scheduling={"slice": {"tokens": 64}}, routing={"rebalance": rebalance})
    found = policy_document(parse_service(asked)).slice
    assert found is not None
    assert found.hand_back is (rebalance == "Auto")


@pytest.mark.parametrize("policy", registry.policy_names())
def test_a_budget_left_to_the_policy_is_spelled_out_for_engines(policy):
    document = policy_document(parse_service(body(scheduling={"policy": policy})))
    assert document.step_budget.mode == registry.default_budget(policy)


def test_a_budget_by_target_goes_with_any_policy():
    parsed = parse_service(body(scheduling={"policy": "LARRY", "stepBudget": {"mode": "SLO"}}))
    assert policy_document(parsed).step_budget.mode == "SLO"


def test_what_requests_may_ask_for_is_told_only_where_it_is_enabled():
    own = {"minTtft": "200ms"}
    assert policy_document(parse_service(body(slo={"perRequest": own}))).slo.per_request is None
    told = policy_document(parse_service(body(slo={"perRequest": own | {"enabled": True}}))).slo.per_request
    assert told == PerRequest(ttft_ms=200)


@pytest.mark.parametrize(
    ("policy", "block"), [("LARRY", "larry"), ("FCFS", "fcfs"), ("AccelGen", "accelGen")]
)
def test_block_names(policy, block):
    assert block_name(policy) == block


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    ["model", "engine", "scheduling", "slo", "prediction", "routing", "disruption", "podTemplate", "replicas"]
)


@given(st.dictionaries(keys, json_values, max_size=4))
def test_any_spec_is_parsed_or_refused_in_words(change):
    raw = body()
    raw["spec"] |= change
    try:
        registry.validate_document(policy_document(parse_service(raw)))
        said = "spec"
    except SpecInvalidError as error:
        said = str(error)
    assert said.startswith("spec")
