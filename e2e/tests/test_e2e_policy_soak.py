"""What the soak runs: every policy, all that it can be told to do otherwise, and awkward requests."""

from itertools import islice

from e2e.bench import policy_soak
from headrace_engine.contracts import PolicyDocument, codec
from headrace_engine.policies import registry


def test_every_policy_choice_and_step_budget_has_its_turn():
    documents = policy_soak.documents()
    for document in documents:
        registry.validate(document)
        assert codec.loads(PolicyDocument, codec.dumps(document)) == document
    assert len({document.hash for document in documents}) == len(documents)
    seen = {(each.policy, key, value) for each in documents for key, value in each.parameters.items()}
    for name in registry.names():
        assert {each.step_budget.mode for each in documents if each.policy == name} == {
            "Policy",
            "SLO",
            "Fixed",
        }
        for key, schema in registry.parameter_schema(name)["properties"].items():
            for value in schema.get("enum", ()):
                assert value == schema["default"] or (name, key, value) in seen


def test_requests_are_awkward_and_fit_the_engine():
    made = list(islice(policy_soak.arrivals(3000), 3000))
    assert [each.at for each in made] == sorted(each.at for each in made)
    assert all(policy_soak.SETTINGS.refusal(each.prompt_tokens, each.output_tokens) is None for each in made)
    assert min(each.output_tokens for each in made) == 1
    assert {round(each.hint / each.output_tokens, 1) for each in made if each.hint} >= {0.1, 1.0, 10.0}
    assert made == list(policy_soak.arrivals(3000))
