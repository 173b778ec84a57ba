"""A policy document is refused with the key, the bounds and what to do; the schema agrees with that."""

import re

import jsonschema
import pytest
from ep_engine_view import LIMITS

from headrace_engine.contracts import (
    ContractError,
    PerRequest,
    PolicyDocument,
    Prediction,
    Slice,
    Slo,
    StepBudget,
)
from headrace_engine.policies import registry


def test_names():
    assert registry.policy_names() == ("FCFS", "LARRY", "EconoServe", "AccelGen", "DoublingBudget")


@pytest.mark.parametrize("name", registry.policy_names())
def test_schema_and_defaults_agree(name):
    schema = registry.parameter_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    defaults = {key: field["default"] for key, field in schema["properties"].items()}
    jsonschema.validate(defaults, schema)
    registry.validate_document(PolicyDocument(name, defaults))


def test_larry_schema():
    alpha = registry.parameter_schema("LARRY")["properties"]["alpha"]
    assert (alpha["type"], alpha["default"], alpha["minimum"], alpha["maximum"]) == (
        "integer",
        10,
        0,
        100_000,
    )
    assert alpha["description"].endswith("In KV blocks per second.")


@pytest.mark.parametrize("name", registry.policy_names())
def test_every_policy_explains_itself(name):
    assert registry.POLICIES[name].__doc__.startswith(f"{name}: ")


IGNORED = [
    (name, key) for name in registry.policy_names() for key in getattr(registry.POLICIES[name], "IGNORED", ())
]


@pytest.mark.parametrize("value", ["Full", 5, None])
@pytest.mark.parametrize(("policy", "key"), IGNORED)
def test_what_only_simulations_choose_is_no_parameter_and_does_nothing_in_a_document(policy, key, value):
    assert key not in registry.parameter_schema(policy)["properties"]
    document = PolicyDocument(policy, {key: value, "patience": 7})
    registry.validate_document(document)
    assert registry.used_parameters(policy, document.parameters) == {"patience": 7}
    assert registry.build_policy(document, LIMITS).order is not None


def test_a_parameter_out_of_bounds_is_refused_beside_one_that_does_nothing():
    with pytest.raises(ContractError, match=r"parameters\.patience: -1 is outside 0 to 10000"):
        registry.validate_document(PolicyDocument("EconoServe", {"variant": "Full", "patience": -1}))


@pytest.mark.parametrize("policy", [name for name in registry.policy_names() if name != "FCFS"])
def test_each_parameter_says_when_to_touch_it(policy):
    for schema in registry.parameter_schema(policy)["properties"].values():
        assert re.search("(?i)(raise|set) it where", schema["description"])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            PolicyDocument("SJF"),
            "PolicyDocument.policy: 'SJF' is not one of FCFS, LARRY, EconoServe, AccelGen, DoublingBudget",
        ),
        (PolicyDocument("LARRY", {"alpha": -1}), "parameters.alpha: -1 is outside 0 to 100000"),
        (PolicyDocument("LARRY", {"alpha": 100_001}), "parameters.alpha: 100001 is outside 0 to 100000"),
        (PolicyDocument("LARRY", {"alpha": 1.5}), "parameters.alpha: expected an integer, got 1.5"),
        (PolicyDocument("LARRY", {"alpha": True}), "parameters.alpha: expected an integer, got True"),
        (PolicyDocument("LARRY", {"beta": 1}), "parameters.beta: unknown parameter; known: alpha"),
        (PolicyDocument("FCFS", {"alpha": 1}), "parameters.alpha: unknown parameter; known: none"),
        (PolicyDocument("FCFS", step_budget=StepBudget("Fixed")), "stepBudget.tokens: mode Fixed needs"),
        (PolicyDocument("FCFS", step_budget=StepBudget("Fixed", 0)), "stepBudget.tokens: mode Fixed needs"),
        (
            PolicyDocument("FCFS", step_budget=StepBudget("Engine", 9)),
            "stepBudget.tokens: only with mode Fixed",
        ),
        (PolicyDocument("FCFS", step_budget=StepBudget("SLO", 9)), "stepBudget.tokens: only with mode Fixed"),
        (PolicyDocument("FCFS", slo=Slo(tpot_ms=0)), "slo.tpotMs: 0 is below 1"),
        (PolicyDocument("FCFS", slo=Slo(e2e_scale_percent=99)), "slo.e2eScalePercent: 99 is below 100"),
        (
            PolicyDocument("FCFS", slo=Slo(e2e_ms=1000, e2e_scale_percent=200)),
            "slo.e2eScalePercent: excludes e2eMs",
        ),
        (
            PolicyDocument("FCFS", slo=Slo(per_request=PerRequest(ttft_ms=0))),
            "slo.perRequest.ttftMs: 0 is below 1",
        ),
        (
            PolicyDocument("FCFS", prediction=Prediction(quantile_percent=100)),
            "prediction.quantilePercent: 100 is above 99",
        ),
        (PolicyDocument("FCFS", slice=Slice(0)), "slice.tokens: 0 is below 1"),
        (PolicyDocument("FCFS", slice=Slice(64, 0)), "slice.patienceMs: 0 is below 1"),
    ],
)
def test_refusals_name_the_key(document, message):
    with pytest.raises(ContractError, match="PolicyDocument") as refused:
        registry.validate_document(document)
    assert message in str(refused.value)
    with pytest.raises(ContractError):
        registry.build_policy(document, LIMITS)
