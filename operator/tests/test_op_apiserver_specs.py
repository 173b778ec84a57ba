"""Random specs from the CRD's own schema: the API server and the operator agree on each.

`HEADRACE_SPECS=10000` tries that many.
"""

import os
import random

import pytest
import yaml
from op_golden import SETTINGS
from op_kube import CRD, llmservice

from headrace_operator.api import parse
from headrace_operator.claims import owned_models
from headrace_operator.desired import desired
from headrace_operator.errors import SpecInvalidError

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(3600)]

COUNT = int(os.environ.get("HEADRACE_SPECS", "150"))
WORDS = [
    "",
    "a",
    "chat",
    "hf://a/b",
    "pvc://claim/x",
    "500ms",
    "2s",
    "0s",
    "1Gi",
    "example/x:1",
    "A b",
    "-x",
    "é",
]


def value(schema, dice):
    """Something that the schema may or may not allow."""
    if dice.random() < 0.01:
        return dice.choice([-1, "?", {}, [], True])
    if "enum" in schema:
        return dice.choice(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        return thing(schema, dice)
    if kind == "array":
        return [value(schema["items"], dice) for _ in range(dice.choice([0, 1, 1, 2]))]
    if kind == "integer":
        low = schema.get("minimum", 0)
        return dice.choice([low, low + 1, low + 7, schema.get("maximum", 100), low - (dice.random() < 0.05)])
    if kind == "boolean":
        return dice.random() < 0.5
    return dice.choice(WORDS)


def thing(schema, dice):
    fields = schema.get("properties", {})
    needed = schema.get("required", [])
    return {
        name: value(field, dice) for name, field in fields.items() if name in needed or dice.random() < 0.12
    }


def spec_schema():
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def verdict(body):
    """Whether the operator takes the spec; every other error is a bug."""
    try:
        return parse(body), ""
    except SpecInvalidError as error:
        return None, str(error)


@pytest.mark.parametrize("part", range(10))
def test_the_api_server_and_the_operator_agree_on_every_spec(kube, part, record_property):
    """Invariant 12: what one takes the other takes, and what is taken makes objects that are taken."""
    schema = spec_schema()
    taken, wrong = 0, []
    for number in range(part, COUNT, 10):
        dice = random.Random(number)
        body = llmservice(f"s{number}")
        blocks = dice.sample(sorted(schema["properties"]), dice.randint(1, 3))
        body["spec"] |= {block: value(schema["properties"][block], dice) for block in blocks}
        answer = kube.http.post(
            kube.path("llmservices"), params={"fieldValidation": "Strict", "dryRun": "All"}, json=body
        )
        assert answer.status_code in {201, 400, 422}, f"spec {number}: {answer.text}"
        accepted = answer.status_code == 201
        complete = answer.json() if accepted else body
        complete["metadata"] |= {"uid": "u", "namespace": kube.namespace}
        service, refusal = verdict(complete)
        if (service is not None) != accepted:
            wrong.append(f"spec {number}: {body['spec']}: {refusal or answer.text}")
        elif service is not None:
            taken += 1
            wrong += refused_objects(kube, service, number)
    record_property("cases", len(range(part, COUNT, 10)))
    record_property("held", len(range(part, COUNT, 10)) - len(wrong))
    assert wrong == []
    assert taken


def refused_objects(kube, service, number):
    """What the API server says against the service's objects; a Deployment's refusal the user is told of."""
    for manifest in desired(service, SETTINGS, owned_models(service), None):
        plural = manifest["kind"].lower() + "s"
        plural = {"networkpolicys": "networkpolicies"}.get(plural, plural)
        answer = kube.http.patch(
            kube.path(plural, manifest["metadata"]["name"]),
            params={"fieldManager": "test", "force": "true", "dryRun": "All"},
            json=manifest,
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        told = manifest["kind"] == "Deployment" and answer.status_code in {400, 422}
        if answer.status_code not in {200, 201} and not told:
            yield f"spec {number}: {answer.text}"
