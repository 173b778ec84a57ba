"""What docs/upgrade.md says of a field that the definition loses, on a real API server."""

import copy

import pytest
import yaml
from op_kube import CRD, eventually, llmservice, ok

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

GROUP = "renamed.headrace.dev"  # a definition of its own, so that no other test meets the field
OLD_SLO = {"ttft": "1s", "tbt": "100ms"}


def definition(*, old):
    """The definition in a group of its own; `old`: its SLO has `tbt` in place of `tpot`."""
    body = yaml.safe_load(CRD.read_text())
    body["metadata"]["name"] = f"llmservices.{GROUP}"
    body["spec"]["group"] = GROUP
    [version] = body["spec"]["versions"]
    slo = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["slo"]
    if old:
        slo["properties"]["tbt"] = copy.deepcopy(slo["properties"].pop("tpot"))
        del slo["x-kubernetes-validations"]
    return body


def install(kube, body):
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/llmservices.{GROUP}"
    query = {"fieldManager": "test", "force": "true"}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    ok(kube.http.patch(path, params=query, json=body, headers=headers))


def path(kube, name=""):
    return f"/apis/{GROUP}/v1alpha1/namespaces/{kube.namespace}/llmservices/{name}".rstrip("/")


def create(kube, name, validation):
    body = {**llmservice(name, slo=OLD_SLO), "apiVersion": f"{GROUP}/v1alpha1"}
    return kube.http.post(path(kube), params={"fieldValidation": validation}, json=body)


def slo(service):
    return {key: value for key, value in service["spec"]["slo"].items() if key != "perRequest"}


def test_a_field_that_the_definition_loses_is_dropped_silently_and_refused_when_it_is_applied(kube):
    install(kube, definition(old=True))
    before = eventually(lambda: (answer := create(kube, "chat", "Strict")).is_success and answer.json())
    assert slo(before) == OLD_SLO
    install(kube, definition(old=False))
    eventually(lambda: "tbt" not in slo(ok(kube.http.get(path(kube, "chat")))))
    after = ok(kube.http.get(path(kube, "chat")))
    assert slo(after) == {"ttft": "1s"}
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    refused = create(kube, "strict", "Strict")  # as kubectl asks
    assert refused.status_code == 400
    assert 'unknown field "spec.slo.tbt"' in refused.json()["message"]
    warned = create(kube, "lax", "Warn")  # what the API server does unless it is asked
    assert slo(ok(warned)) == {"ttft": "1s"}
    assert "spec.slo.tbt" in warned.headers["warning"]
