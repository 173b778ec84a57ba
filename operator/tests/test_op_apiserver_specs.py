"""Random specs from the CRD's own schema: the API server and the operator agree on each.

`HEADRACE_SPECS=10000` tries that many.
"""

import os
import random

import pytest
from op_golden import SETTINGS
from op_kube import llmservice

from e2e.bench.mutations.specs import Maker
from headrace_operator.api import parse_service
from headrace_operator.decide.model_names import served_model_names
from headrace_operator.desired import desired_objects
from headrace_operator.errors import SpecInvalidError

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(3600)]

COUNT = int(os.environ.get("HEADRACE_SPECS", "400"))


def submit(body):
    """Whether the operator takes the spec; every other error is a bug."""
    try:
        return parse_service(body), ""
    except SpecInvalidError as error:
        return None, str(error)


def some_spec(number):
    """A spec in which some fields are as the schema may or may not allow."""
    dice = random.Random(number)
    maker = Maker(dice, wrong=dice.choice([0.0, 0.02, 0.2]))
    spec = llmservice(f"s{number}")["spec"]
    for leaf in dice.sample(sorted(maker.leaves), dice.randint(1, 6)):
        spec = maker.changed(spec, leaf)
    return spec


@pytest.mark.parametrize("part", range(10))
def test_the_api_server_and_the_operator_agree_on_every_spec(kube, part, record_property):
    """Invariant 12: what one takes the other takes, and what is taken makes objects that are taken."""
    taken, wrong = 0, []
    for number in range(part, COUNT, 10):
        body = llmservice(f"s{number}") | {"spec": some_spec(number)}
        answer = kube.http.post(
            kube.path("llmservices"), params={"fieldValidation": "Strict", "dryRun": "All"}, json=body
        )
        assert answer.status_code in {201, 400, 422}, f"spec {number}: {answer.text}"
        accepted = answer.status_code == 201
        complete = answer.json() if accepted else body
        complete["metadata"] |= {"uid": "u", "namespace": kube.namespace}
        service, refusal = submit(complete)
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
    """What the API server says against the service's objects: the definition must have said it before."""
    for manifest in desired_objects(service, SETTINGS, served_model_names(service), None):
        plural = manifest["kind"].lower() + "s"
        plural = {"networkpolicys": "networkpolicies"}.get(plural, plural)
        answer = kube.http.patch(
            kube.path(plural, manifest["metadata"]["name"]),
            params={"fieldManager": "test", "force": "true", "dryRun": "All"},
            json=manifest,
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        verbatim = manifest["kind"] == "Deployment" and service.spec.pod_template.affinity is not None
        told = verbatim and answer.status_code in {400, 422, 500} and "ffinity" in answer.text
        if answer.status_code not in {200, 201} and not told:
            yield f"spec {number}: {answer.text}"
