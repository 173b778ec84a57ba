"""Plans: nothing at the fixpoint, exactly what differs otherwise."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_golden import SETTINGS
from op_world import applied, body, observed

from headrace_operator.api import parse_service
from headrace_operator.api.quantity import same_quantity
from headrace_operator.decide.model_names import served_model_names
from headrace_operator.decide.plan import Apply, Delete, contains_fields, plan_actions
from headrace_operator.desired import desired_objects


def wanted(raw, live=None):
    service = parse_service(raw)
    return desired_objects(service, SETTINGS, served_model_names(service), live)


def actions(raw, seen, wanted_objects=None):
    objects = wanted(raw, seen.deployment("chat")) if wanted_objects is None else wanted_objects
    return plan_actions(objects, seen)


specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 9),
        "accelerator": st.sampled_from(
            [{"type": "CPU"}, {"type": "GPU"}, {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}]
        ),
        "scheduling": st.sampled_from([{"policy": "FCFS"}, {"policy": "LARRY", "larry": {"alpha": 3}}]),
        "engine": st.sampled_from([{"image": "a"}, {"image": "b", "tensorParallelSize": 2}]),
    },
)


@given(specs)
def test_nothing_is_written_at_the_fixpoint(spec):
    raw = body(**spec)
    assert actions(raw, observed(raw)) == ()


@given(specs, specs)
def test_any_change_converges_in_one_plan(before, after):
    old, new = body(**before), body(**after)
    seen = observed(old)
    live = {(o["kind"], o["metadata"]["name"]): o for o in applied(old)}
    for action in actions(new, seen):
        match action:
            case Apply(manifest):
                live[manifest["kind"], manifest["metadata"]["name"]] = manifest
            case Delete(kind, name):
                live.pop((kind, name), None)
    fresh = {(o["kind"], o["metadata"]["name"]) for o in wanted(new)}
    assert set(live) == fresh
    assert contains_fields(live["Deployment", "chat"]["spec"], wanted(new)[-1]["spec"])


def test_everything_is_created_in_an_order_in_which_pods_find_what_they_need():
    kinds = [action.manifest["kind"] for action in actions(body(), observed(body(), objects=[]))]
    assert kinds[-1] == "Deployment"
    assert kinds[0] == "ConfigMap"
    assert all(action.creates for action in actions(body(), observed(body(), objects=[])))


def test_a_policy_change_writes_the_policy_alone():
    changed = body(scheduling={"policy": "LARRY"})
    written = [action.manifest["metadata"]["name"] for action in actions(changed, observed(body()))]
    assert written == ["chat-policy"]


def test_a_foreign_edit_of_our_field_is_healed_and_of_another_is_not():
    objects = applied(body())
    objects[-1]["spec"]["replicas"] = 7
    objects[-1]["spec"]["minReadySeconds"] = 3
    objects[0]["metadata"]["annotations"]["example.com/x"] = "y"
    plans = actions(body(), observed(body(), objects=objects))
    assert [action.manifest["kind"] for action in plans] == ["Deployment"]


def test_what_is_no_longer_wanted_is_deleted_by_uid():
    dra = body(accelerator={"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}})
    deletes = [a for a in actions(body(), observed(dra)) if isinstance(a, Delete)]
    assert deletes == [Delete("ResourceClaimTemplate", "chat-gpu", "ResourceClaimTemplate-chat-gpu")]


@pytest.mark.parametrize("owners", [None, [], [{"uid": "another", "controller": True}]])
def test_a_copy_with_our_labels_is_left_alone(owners):
    copied = copy.deepcopy(applied(body())[-1])
    copied["metadata"] |= {"name": "chat-canary", "ownerReferences": owners}
    assert actions(body(), observed(body(), objects=[*applied(body()), copied])) == ()


def test_a_copy_that_names_the_service_as_its_owner_is_left_alone():
    gpu = body(accelerator={"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}})
    copies = [copy.deepcopy(applied(gpu)[-1]), copy.deepcopy(applied(gpu)[-2])]
    for each in copies:
        each["metadata"]["name"] = "chat-canary"
    assert {each["kind"] for each in copies} == {"Deployment", "ResourceClaimTemplate"}
    assert actions(body(), observed(body(), objects=[*applied(body()), *copies])) == ()


def test_what_a_deleted_service_of_that_name_left_is_not_written_over():
    objects = applied(body())
    objects[-1]["metadata"]["ownerReferences"][0]["uid"] = "predecessor"
    plans = actions(body(), observed(body(), objects=objects))
    assert [(action.manifest["kind"], action.creates) for action in plans] == [("Deployment", True)]


def test_an_immutable_claim_template_is_replaced():
    dra = {"accelerator": {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}}
    two = body(**dra, engine={"image": "example/vllm:1", "tensorParallelSize": 2})
    steps = actions(two, observed(body(**dra)))
    assert [type(step).__name__ for step in steps] == ["Delete", "Apply", "Apply"]
    assert steps[0].kind == steps[1].manifest["kind"] == "ResourceClaimTemplate"


@pytest.mark.parametrize(
    ("live", "ours", "same"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": 0}, True),
        ({}, {"a": 1}, False),
        ([{"name": "x", "v": 1}, {"name": "injected"}], [{"name": "x", "v": 1}], True),
        ([{"name": "y"}], [{"name": "x"}], False),
        (["a", "b"], ["a"], False),
        ({"resources": {"limits": {"memory": "1024Mi"}}}, {"resources": {"limits": {"memory": "1Gi"}}}, True),
        ({"resources": {"requests": {"cpu": "2"}}}, {"resources": {"requests": {"cpu": 2}}}, True),
        ({"resources": {"requests": {"cpu": "2"}}}, {"resources": {"requests": {"cpu": "2500m"}}}, False),
        ({"emptyDir": {"sizeLimit": "1024Mi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}, True),
        ([{"name": "A", "value": "1"}], [{"name": "A", "value": "1.0"}], False),
        ({"labels": {"sizeLimit": "1"}}, {"labels": {"sizeLimit": "1.0"}}, False),
        ({"annotations": {"requests": "1k"}}, {"annotations": {"requests": "1000"}}, False),
        ({"nodeSelector": {"memory": "1Gi"}}, {"nodeSelector": {"memory": "1024Mi"}}, False),
        (["1"], ["1.0"], False),
        ({"data": {"a": "1"}}, {"data": {"a": 1}}, False),
    ],
)
def test_contains(live, ours, same):
    assert contains_fields(live, ours) is same


SPELLED_TWICE = [("1", "1.0"), ("1000m", "1"), ("1024", "1Ki"), ("2k", "2000")]


@pytest.mark.parametrize(("live", "ours"), SPELLED_TWICE)
def test_only_resources_and_sizes_are_read_as_quantities(live, ours):
    """Every text that we write is taken for what it says, but for those fields."""
    raw = body(
        engine={"image": "i", "env": [{"name": "A", "value": ours}], "args": [ours]},
        podTemplate={
            "metadata": {"labels": {"limits": ours}, "annotations": {"sizeLimit": ours}},
            "nodeSelector": {"requests": ours},
            "tolerations": [{"key": "a", "value": ours}],
            "resources": {"requests": {"cpu": ours}, "limits": {"cpu": ours}},
            "volumes": [{"name": "a", "emptyDir": {"sizeLimit": ours}}],
        },
    )
    deployment = applied(raw)[-1]
    places = list(texts(deployment["spec"]["template"], ours))
    assert len(places) == 9
    for place in places:
        edited = copy.deepcopy(deployment)
        edit(edited["spec"]["template"], place, live)
        healed = actions(raw, observed(raw, objects=[*applied(raw)[:-1], edited]))
        assert bool(healed) != (place[-1] == "cpu" or place[-2:] == ("emptyDir", "sizeLimit")), place


def texts(tree, text, place=()):
    """Places of a text in JSON."""
    if isinstance(tree, dict | list):
        for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from texts(item, text, (*place, key))
    elif tree == text:
        yield place


def edit(tree, place, value):
    for key in place[:-1]:
        tree = tree[key]
    tree[place[-1]] = value


@given(st.integers(0, 10**6))
def test_equal_amounts_in_other_units(amount):
    assert same_quantity(f"{amount}Ki", f"{amount * 1024}")
    assert same_quantity(f"{amount}", f"{amount * 1000}m")
    assert not same_quantity(f"{amount}Ki", f"{amount + 1}Ki")


def test_the_api_servers_rounding_up_to_thousandths_is_no_difference():
    assert same_quantity("0.0001", "1m")
    assert not same_quantity("0.0011", "1m")


def test_plans_do_not_change_what_they_look_at():
    objects = applied(body())
    before = copy.deepcopy(objects)
    actions(body(replicas=9), observed(body(), objects=objects))
    assert objects == before
