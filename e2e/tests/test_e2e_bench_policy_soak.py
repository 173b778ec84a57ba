"""What the soak runs: every policy, all that it can be told to do otherwise, and awkward requests."""

import json
import subprocess
from itertools import islice

import pytest

from e2e.bench import policy_soak
from e2e.bench.real_engine import outputs as engine_outputs
from headrace_engine.contracts import PolicyDocument, codec
from headrace_engine.policies import registry


def test_every_policy_choice_and_step_budget_has_its_turn():
    documents = policy_soak.documents()
    for document in documents:
        registry.validate_document(document)
        assert codec.loads(PolicyDocument, codec.dumps(document)) == document
    assert len({document.hash for document in documents}) == len(documents)
    seen = {(each.policy, key, value) for each in documents for key, value in each.parameters.items()}
    for name in registry.policy_names():
        assert {each.step_budget.mode for each in documents if each.policy == name} == {
            "Policy",
            "SLO",
            "Fixed",
        }
        for key, schema in registry.parameter_schema(name)["properties"].items():
            for value in schema.get("enum", ()):
                assert value == schema["default"] or (name, key, value) in seen


def test_every_number_is_tried_at_its_ends():
    made = policy_soak.extremes()
    for document in made:
        registry.validate_document(document)
    tried = {(each.policy, key) for each in made for key in each.parameters}
    assert tried == {
        (name, key)
        for name in registry.policy_names()
        for key, schema in registry.parameter_schema(name)["properties"].items()
        if schema["type"] in ("integer", "number")
    }


def test_requests_are_awkward_and_fit_the_engine():
    made = list(islice(policy_soak.arrivals(3000), 3000))
    assert [each.at for each in made] == sorted(each.at for each in made)
    assert all(policy_soak.SETTINGS.refusal(each.prompt_tokens, each.output_tokens) is None for each in made)
    assert min(each.output_tokens for each in made) == 1
    assert {round(each.hint / each.output_tokens, 1) for each in made if each.hint} >= {0.1, 1.0, 10.0}
    assert made == list(policy_soak.arrivals(3000))


STOCK = [[1, 2], [3]]


def report(**changes):
    round_ = {"tokens": STOCK, "step": 9, "preemptions": 1, "fallback_steps": 0}
    return {"stock": STOCK, "rounds": [round_, round_], "walk": [STOCK]} | changes


def changed(monkeypatch, said):
    def engine(*_command, **_options):
        return subprocess.CompletedProcess([], 0, f"noise\n{engine_outputs.MARK}{json.dumps(said)}\n", "")

    monkeypatch.setattr(policy_soak.model, "write", lambda _folder: None)
    monkeypatch.setattr(policy_soak.subprocess, "run", engine)
    return policy_soak.outputs_changed()


def test_answers_that_differ_are_counted_also_those_of_the_walk(monkeypatch):
    assert changed(monkeypatch, report()) == 0
    other = {"tokens": [[1, 9], [4]], "step": 9, "preemptions": 1, "fallback_steps": 0}
    assert changed(monkeypatch, report(rounds=[other, report()["rounds"][0]])) == 2
    assert changed(monkeypatch, report(walk=[STOCK, [[1, 2], [4]]])) == 1


def test_a_walk_without_requests_or_steps_without_a_plan_prove_nothing(monkeypatch):
    with pytest.raises(RuntimeError, match="0 rounds of the walk"):
        changed(monkeypatch, report(walk=[]))
    planless = {"tokens": STOCK, "step": 9, "preemptions": 1, "fallback_steps": 3}
    with pytest.raises(RuntimeError, match="3 fallback steps"):
        changed(monkeypatch, report(rounds=[planless]))
