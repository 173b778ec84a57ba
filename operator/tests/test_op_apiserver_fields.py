"""What the API server fills in: for every field of the schema, nothing of a former spec outlives its change.

Of what it fills in nobody is the owner, so that a later apply leaves it, also where the new content would
have got another: an image's tag decides how the image is pulled.
"""

import copy
import itertools
import random

import pytest
from op_golden import SETTINGS
from op_kube import llmservice, new_namespace, ok

from e2e.bench.mutations.specs import Maker, flat, schema
from headrace_operator.api import parse_service
from headrace_operator.decide.model_names import served_model_names
from headrace_operator.desired import desired_objects
from headrace_operator.errors import RefusedError

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

SCHEMA = schema()
_TRIES = 400
PLURALS = {"networkpolicy": "networkpolicies"}


@pytest.fixture(scope="module")
def places(crd):
    """A namespace in which objects change, and one in which there are none."""
    found = new_namespace(crd, "fields-changed"), new_namespace(crd, "fields-fresh")
    yield found
    for kube in found:
        kube.close()


def accepted(kube, spec):
    """The spec as the API server stores it; None if it, or the operator, takes no such spec."""
    body = llmservice() | {"spec": spec}
    query = {"fieldValidation": "Strict", "dryRun": "All"}
    answer = kube.http.post(kube.path("llmservices"), params=query, json=body)
    if answer.status_code != 201:
        return None
    try:
        return parse_service(answer.json() | {"metadata": {**answer.json()["metadata"], "uid": "u"}})
    except RefusedError:
        return None


def another(kube, maker, spec, leaf):
    """A spec in which this leaf is another, and its service."""
    before = flat(spec, SCHEMA).get(leaf)
    for _ in range(_TRIES):
        changed = maker.changed(spec, leaf)
        if flat(changed, SCHEMA).get(leaf) != before and (service := accepted(kube, changed)):
            return changed, service
    raise AssertionError(f"{leaf}: no value that is taken; give it some in e2e/bench/mutations/specs.py")


def apply(kube, manifest, dry_run):
    """The object as it is then."""
    plural = manifest["kind"].lower()
    body = {**manifest, "metadata": {**manifest["metadata"], "namespace": kube.namespace}}
    query = {"fieldManager": "headrace-operator", "force": "true"} | ({"dryRun": "All"} if dry_run else {})
    path = kube.path(PLURALS.get(plural, plural + "s"), manifest["metadata"]["name"])
    headers = {"Content-Type": "application/apply-patch+yaml"}
    return ok(kube.http.patch(path, params=query, json=body, headers=headers))


def content(body):
    """What was asked for and what was filled in, without what each object has of its own."""
    body = copy.deepcopy(body)
    own = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "namespace")
    for name in own:
        body["metadata"].pop(name, None)
    body["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    for name in ("clusterIP", "clusterIPs"):
        body.get("spec", {}).pop(name, None)
    body.pop("status", None)
    return body


@pytest.mark.parametrize("leaf", Maker(random.Random(0)).leaves)
def test_nothing_outlives_a_change_of_this_field(places, leaf):
    kube, fresh = places
    maker = Maker(random.Random(leaf))
    start = llmservice(model={"source": "hf://a/b"})["spec"]
    first, _ = another(kube, maker, start, leaf)
    second, _ = another(kube, maker, first, leaf)
    for before, after in ((start, first), (first, second), (second, start)):
        written = {m["kind"] + m["metadata"]["name"]: m for m in manifests(kube, before)}
        for manifest in manifests(kube, after):
            old = written.get(manifest["kind"] + manifest["metadata"]["name"])
            if old in (None, manifest) or manifest["kind"] == "ResourceClaimTemplate":
                continue  # the last is made anew
            apply(kube, old, dry_run=False)
            assert content(apply(kube, manifest, dry_run=True)) == content(
                apply(fresh, manifest, dry_run=True)
            )


SOURCES = {
    "configMap": {"name": "a", "items": [{"key": "a", "path": "b"}]},
    "secret": {"secretName": "a"},
    "emptyDir": {},
    "persistentVolumeClaim": {"claimName": "a"},
    "hostPath": {"path": "/a"},
    "image": {"reference": "example/weights:1"},
    "csi": {"driver": "a.example.com", "volumeAttributes": {"a": "b"}},
}
VALUES = {
    "value": "a",
    "secret": {"secretKeyRef": {"name": "a", "key": "a"}},
    "configMap": {"configMapKeyRef": {"name": "a", "key": "a"}},
    "field": {"fieldRef": {"fieldPath": "metadata.name"}},
}


def with_volume(source):
    return {"podTemplate": {"volumes": [{"name": "data", source: SOURCES[source]}]}}


def with_variable(source):
    value = VALUES[source]
    given = {"value": value} if source == "value" else {"valueFrom": value}
    return {"engine": {"image": "example/vllm:1", "env": [{"name": "A", **given}]}}


@pytest.mark.parametrize(
    ("make", "before", "after"),
    [
        *((with_volume, *pair) for pair in itertools.permutations(SOURCES, 2)),
        *((with_variable, *pair) for pair in itertools.permutations(VALUES, 2)),
    ],
)
def test_nothing_outlives_a_change_to_another_source(places, make, before, after):
    kube, fresh = places
    [old], [new] = (
        [m for m in manifests(kube, llmservice(**make(source))["spec"]) if m["kind"] == "Deployment"]
        for source in (before, after)
    )
    apply(kube, old, dry_run=False)
    assert content(apply(kube, new, dry_run=True)) == content(apply(fresh, new, dry_run=True))


def manifests(kube, spec):
    service = accepted(kube, spec)
    return desired_objects(service, SETTINGS, served_model_names(service), None)
