"""Owned objects: golden cases, and that only what must restart an engine touches the pod template."""

import dataclasses

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from op_golden import SETTINGS, cases, expected, render
from op_kube import llmservice

from headrace_engine.contracts import PolicyDocument, loads
from headrace_engine.contracts.codec import camel
from headrace_engine.policies import registry
from headrace_operator import names
from headrace_operator.api import RouteSpec, parse_service
from headrace_operator.api.engine import Engine
from headrace_operator.api.reserved import (
    ARGUMENTS,
    ENVIRONMENT,
    FLAGS_BY_FIELD,
    HOST_FLAG,
    PORT_FLAG,
    VARIABLE_BY_FIELD,
    passed_flag,
)
from headrace_operator.decide.model_names import served_model_names
from headrace_operator.desired import desired_objects, without_models
from headrace_operator.desired.disruption_budget import disruption_budget

UPGRADED = dataclasses.replace(SETTINGS, sidecar_image="example/sidecar:2")


def body(**spec):
    raw = llmservice(**spec)
    raw["metadata"] |= {"namespace": "llm", "uid": "u1", "generation": 1}
    return raw


def objects(raw, settings=SETTINGS, live=None):
    service = parse_service(raw)
    rendered = desired_objects(service, settings, served_model_names(service), live)
    return {(item["kind"], item["metadata"]["name"]): item for item in rendered}


def deployment(raw, settings=SETTINGS, live=None):
    return objects(raw, settings, live)["Deployment", "chat"]


def template(raw, **options):
    return deployment(raw, **options)["spec"]["template"]


def engine(raw):
    return template(raw)["spec"]["containers"][0]


@pytest.mark.parametrize("case", cases())
def test_golden(case):
    assert render(case) == expected(case), "if this is meant: python operator/tests/op_golden.py"


def test_the_golden_live_fields_share_the_template_of_their_twin():
    pair = [list(yaml.safe_load_all(expected(case)))[-1] for case in ("cpu-claim", "live-fields")]
    assert pair[0]["spec"]["template"] == pair[1]["spec"]["template"]


durations = st.builds("{}{}".format, st.integers(1, 999_999), st.sampled_from(["ms", "s", "m", "h"]))
live_changes = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 1000),
        "scheduling": st.fixed_dictionaries(
            {"policy": st.sampled_from(registry.policy_names())},
            optional={
                "larry": st.fixed_dictionaries({"alpha": st.integers(0, 100_000)}),
                "stepBudget": st.builds(lambda n: {"mode": "Fixed", "tokens": n}, st.integers(1, 100_000)),
            },
        ),
        "slo": st.fixed_dictionaries({}, optional={"e2e": durations}),
        "routing": st.fixed_dictionaries(
            {"balancer": st.sampled_from(["SAL", "LeastRequest", "Random"])}, optional={"maxQueue": durations}
        ),
        "disruption": st.fixed_dictionaries(
            {"maxUnavailable": st.integers(1, 9), "maxSurge": st.integers(0, 9)}
        ),
    },
)


@given(live_changes)
def test_live_fields_never_touch_the_template(change):
    assert template(body(**change)) == template(body())


@given(live_changes)
def test_contract_documents_read_back(change):
    rendered = objects(body(**change))
    document = loads(PolicyDocument, rendered["ConfigMap", "chat-policy"]["data"]["policy.json"])
    registry.validate_document(document)
    assert document.hash == document.content_hash()
    spec = rendered["LLMRoute", "chat"]["spec"]
    assert spec["models"] == ["llm/chat", "chat"]
    read_back = RouteSpec.model_validate(spec).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert {
        name: value for name, value in read_back.items() if value != []
    } == spec  # nothing that the API server would drop, refuse or fill in


def test_scaling_leaves_the_policy_hash_alone():
    one, nine = (objects(body(replicas=n))["ConfigMap", "chat-policy"]["data"] for n in (1, 9))
    assert one == nine


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"source": "hf://other/model"}},
        {"engine": {"image": "example/vllm:2"}},
        {"engine": {"image": "example/vllm:1", "args": ["--enforce-eager"]}},
        {"accelerator": {"type": "GPU"}},
        {"podTemplate": {"nodeSelector": {"a": "b"}}},
        {"disruption": {"drainTimeout": "1m"}},
    ],
)
def test_what_shapes_pods_changes_template_and_inputs(change):
    before, after = deployment(body()), deployment(body(**change))
    assert before["spec"]["template"] != after["spec"]["template"]
    hashes = [d["metadata"]["annotations"][names.INPUTS_HASH] for d in (before, after)]
    assert hashes[0] != hashes[1]


def test_an_upgrade_of_the_operator_keeps_the_sidecar_image_until_the_next_own_rollout():
    live = deployment(body())
    assert template(body(), settings=UPGRADED, live=live) == live["spec"]["template"]
    rolled = template(body(engine={"image": "example/vllm:2"}), settings=UPGRADED, live=live)
    assert {c["image"] for c in rolled["spec"]["initContainers"]} == {"example/sidecar:2"}


def test_a_template_of_another_release_is_left_as_it_is():
    live = deployment(body())
    live["spec"]["template"]["spec"]["containers"][0]["env"].append(
        {"name": "FROM_ANOTHER_RELEASE", "value": "1"}
    )
    live["metadata"]["annotations"][names.TEMPLATE_HASH] = "0" * 16
    again = deployment(body(replicas=4), settings=UPGRADED, live=live)
    assert again["spec"]["template"] == live["spec"]["template"]
    assert again["spec"]["replicas"] == 4
    assert again["metadata"]["annotations"][names.TEMPLATE_HASH] == "0" * 16


def test_an_edited_template_of_this_release_is_healed():
    live = deployment(body())
    wanted = template(body())
    live["spec"]["template"] = {**wanted, "spec": {**wanted["spec"], "containers": []}}
    assert template(body(), live=live) == wanted


def test_operator_arguments_come_last_so_that_they_win():
    args = engine(body(engine={"image": "i", "args": ["--seed", "1"]}))["args"]
    assert args[:2] == ["--seed", "1"]
    assert "--model=/models/models/tiny" in args[2:]
    assert args[2:5] == ["--served-model-name", "chat", "llm/chat"]


NO_ARGUMENTS = {"image", "args", "env", "envFrom", "startTimeout"}  # of spec.engine
NOT_PASSED = {"spec.model.tokenSecretRef", "spec.model.cache", "spec.replicas", "spec.scheduling.policy"}
EVERYTHING_SET = {
    "model": {"source": "hf://m/m", "revision": "r", "servedName": "s", "tokenSecretRef": {"name": "t"}},
    "engine": {"image": "i", "maxModelLen": 1, "gpuMemoryUtilizationPercent": 50, "blockSize": 16},
}


def test_each_field_of_the_engine_is_an_argument_that_users_may_not_set_too():
    fields = {f"spec.engine.{camel(name)}" for name in Engine.model_fields if camel(name) not in NO_ARGUMENTS}
    assert fields == {field for field in FLAGS_BY_FIELD if field.startswith("spec.engine.")}


def test_each_argument_and_variable_that_the_operator_passes_is_reserved():
    container = engine(body(**EVERYTHING_SET))
    passed = {argument.partition("=")[0] for argument in container["args"] if argument.startswith("-")}
    assert passed == {HOST_FLAG, PORT_FLAG} | {
        passed_flag(field) for field in FLAGS_BY_FIELD.keys() - NOT_PASSED
    }
    assert passed <= ARGUMENTS.keys()
    variables = {variable["name"] for variable in container["env"]}
    assert variables == set(VARIABLE_BY_FIELD.values()) <= ENVIRONMENT.keys()


def test_drain_is_the_engines_own_and_the_grace_period_covers_it():
    raw = body(disruption={"drainTimeout": "90s"})
    assert "--shutdown-timeout=90" in engine(raw)["args"]
    assert engine(raw)["lifecycle"]["preStop"]["sleep"]["seconds"] == 5
    assert template(raw)["spec"]["terminationGracePeriodSeconds"] == 105


@pytest.mark.parametrize(("unavailable", "evictions"), [(0, 1), (1, 1), (3, 3)])
def test_nodes_can_always_be_drained(unavailable, evictions):
    service = parse_service(body(disruption={"maxUnavailable": unavailable, "maxSurge": 1}))
    assert disruption_budget(service)["spec"]["maxUnavailable"] == evictions


def test_pods_hold_no_token_and_the_sidecar_no_privilege():
    spec = template(body())["spec"]
    assert spec["automountServiceAccountToken"] is False
    for container in spec["initContainers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert security["runAsNonRoot"]
        assert security["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("security", "extra", "home"),
    [
        ({}, {}, None),
        ({"runAsNonRoot": True}, {}, None),
        ({"runAsUser": 1000}, {}, "/tmp"),
        ({"readOnlyRootFilesystem": True}, {}, "/tmp"),
        ({"runAsUser": 1000}, {"env": [{"name": "HOME", "value": "/scratch"}]}, "/scratch"),
    ],
)
def test_who_may_not_write_where_the_image_says_has_a_home(security, extra, home):
    raw = body(podTemplate={"securityContext": security}, engine={"image": "example/vllm:1", **extra})
    container, volumes = engine(raw), template(raw)["spec"]["volumes"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment.get("HOME") == home
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert ("headrace-home" in mounted) == (home is not None)
    assert mounted <= {volume["name"] for volume in volumes}


def test_a_lost_name_leaves_the_live_route_otherwise_alone():
    service = parse_service(body())
    live = objects(body(routing={"balancer": "Random"}))["LLMRoute", "chat"]
    spec = without_models(service, live, ["chat"])["spec"]
    assert spec == {**live["spec"], "models": ["llm/chat"]}
    assert spec["balancer"] == "Random"


@pytest.mark.parametrize(
    ("args", "accelerator", "cached"),
    [
        ([], "GPU", True),
        (["--no-enable-prefix-caching"], "GPU", False),
        (["--no-enable-prefix-caching", "--enable-prefix-caching"], "GPU", True),
        ([], "CPU", False),
    ],
)
def test_the_gateway_learns_whether_engines_cache_prefixes(args, accelerator, cached):
    raw = body()
    raw["spec"]["engine"]["args"] = args
    raw["spec"]["accelerator"] = {"type": accelerator}
    assert objects(raw)["LLMRoute", "chat"]["spec"]["prefixCaching"] is cached


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("example/vllm", "Always"),
        ("example/vllm:latest", "Always"),
        ("example.com:5000/vllm", "Always"),
        ("example/vllm:v1", "IfNotPresent"),
        ("example.com:5000/vllm:v1", "IfNotPresent"),
        ("example/vllm@sha256:0a", "IfNotPresent"),
        ("example/vllm:v1@sha256:0a", "IfNotPresent"),
        ("example/vllm:latest@sha256:0a", "Always"),
    ],
)
def test_images_are_pulled_as_their_own_tag_says(image, policy):
    assert engine(body(engine={"image": image}))["imagePullPolicy"] == policy


@pytest.mark.parametrize(("timeout", "checks"), [("1h", 1800), ("10s", 5), ("10500ms", 6), ("168h", 302_400)])
def test_a_start_may_take_as_long_as_the_spec_says(timeout, checks):
    raw = body(engine={"image": "i", "startTimeout": timeout})
    probe = engine(raw)["startupProbe"]
    assert probe["failureThreshold"] == checks
    spec = deployment(raw)["spec"]
    waits = spec["template"]["spec"]["terminationGracePeriodSeconds"] + probe["periodSeconds"] * checks
    assert 600 + waits - 1 <= spec["progressDeadlineSeconds"] <= 600 + waits


def test_the_start_that_is_the_default_is_no_change_of_what_runs():
    plain, told = body(), body(engine={"image": "example/vllm:1", "startTimeout": "1h"})
    assert template(plain) == template(told)
