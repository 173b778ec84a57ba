"""A policy document is refused with the key, the bounds and what to do; the schema agrees with that."""

import jsonschema
import pytest
from ep_engine_view import LIMITS

from headrace_engine.contracts import ContractError, PerRequest, PolicyDocument, Prediction, Slo, StepBudget
from headrace_engine.policies import registry


def test_names():
    assert registry.names() == ("FCFS", "LARRY", "EconoServe", "AccelGen")


@pytest.mark.parametrize("name", registry.names())
def test_schema_and_defaults_agree(name):
    schema = registry.parameter_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    defaults = {key: field["default"] for key, field in schema["properties"].items()}
    jsonschema.validate(defaults, schema)
    registry.validate(PolicyDocument(name, defaults))


def test_larry_schema():
    alpha = registry.parameter_schema("LARRY")["properties"]["alpha"]
    assert (alpha["type"], alpha["default"], alpha["minimum"], alpha["maximum"]) == (
        "integer",
        10,
        0,
        100_000,
    )
    assert alpha["description"].endswith("In KV blocks per second.")


@pytest.mark.parametrize("name", registry.names())
def test_every_policy_explains_itself(name):
    assert registry.POLICIES[name].__doc__.startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            PolicyDocument("SJF"),
            "PolicyDocument.policy: 'SJF' is not one of FCFS, LARRY, EconoServe, AccelGen",
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
    ],
)
def test_refusals_name_the_key(document, message):
    with pytest.raises(ContractError, match="PolicyDocument") as refused:
        registry.validate(document)
    assert message in str(refused.value)
    with pytest.raises(ContractError):
        registry.build(document, LIMITS)
