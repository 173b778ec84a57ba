"""What the chart lets Headrace do in a cluster. A wider permission must be argued for here."""

import json

import pytest

from e2e import helm
from headrace_operator.api.pod_template import _PRIVILEGES

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]  # in the tier whose preparation builds Helm

WRITE = {"get", "list", "watch", "create", "patch"}
OPERATOR = {
    **{
        f"headrace.dev/{plural}{part}": verbs
        for plural in ("llmservices", "gpupools")
        for part, verbs in (
            ("", {"get", "list", "watch"}),
            ("/status", {"patch"}),
            ("/finalizers", {"update"}),
        )
    },
    # Deletes: of groups that a GPUPool has no more; an admission policy says so.
    "apps/deployments": WRITE | {"delete"},
    "apps/deployments/scale": {"patch"},
    "apps/replicasets": {"get"},
    "/services": WRITE | {"delete"},
    "headrace.dev/llmroutes": WRITE,
    "/configmaps": WRITE | {"delete"},
    "networking.k8s.io/networkpolicies": WRITE | {"delete"},
    "policy/poddisruptionbudgets": WRITE,
    "resource.k8s.io/resourceclaimtemplates": WRITE | {"delete"},
    "resource.k8s.io/resourceclaims": WRITE | {"delete"},
    "/pods": {"get", "list", "watch", "patch"},
    "/pods/status": {"patch"},
    "/persistentvolumeclaims": {"get"},
    "events.k8s.io/events": {"create", "patch"},
}
LEASE = {"coordination.k8s.io/leases": {"create", "get", "update"}}
PICKER = {
    "headrace.dev/llmroutes": {"list", "watch"},
    "headrace.dev/llmroutes/status": {"patch"},
    "discovery.k8s.io/endpointslices": {"list", "watch"},
}
READ = {"get", "list", "watch"}
VIEW = {
    f"headrace.dev/{resource}": READ
    for resource in (
        "llmservices",
        "llmservices/status",
        "llmservices/scale",
        "llmroutes",
        "llmroutes/status",
        "gpupools",
        "gpupools/status",
    )
}
EDIT = {
    "headrace.dev/llmservices": {"create", "update", "patch", "delete", "deletecollection"},
    "headrace.dev/gpupools": {"create", "update", "patch", "delete", "deletecollection"},
    "headrace.dev/llmservices/scale": {"update", "patch"},
}
USERS = {(None, "headrace-view"): VIEW, (None, "headrace-edit"): EDIT}
# In the release's namespace alone, by names that a rule says where it can: `create` it cannot.
OF_RELEASE = {
    (None, "headrace-operator-lease"): LEASE,
    (None, "headrace-picker-lease"): LEASE,
    # Makes the gateway's key, and tells engines its public half.
    (None, "headrace-operator-gateway-key"): {"/secrets": {"create", "get"}},
}


def permissions(role):
    granted = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                granted.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    return granted


def roles(manifests, kind):
    return {
        (role["metadata"].get("namespace"), role["metadata"]["name"]): permissions(role)
        for role in manifests
        if role["kind"] == kind
    }


def test_cluster_wide():
    manifests = helm.render()
    assert (
        roles(manifests, "ClusterRole")
        == {
            (None, "headrace-operator"): OPERATOR,
            (None, "headrace-picker"): PICKER,
        }
        | USERS
    )
    assert roles(manifests, "Role") == OF_RELEASE


def test_users_get_as_much_as_they_have_of_other_kinds():
    """The cluster's own roles take these up; nobody gets to write a status or a route by them."""
    found = {
        m["metadata"]["name"]: m["metadata"]["labels"] for m in helm.render() if m["kind"] == "ClusterRole"
    }
    into = {
        name: {label.rpartition("-")[2] for label in labels if label.startswith("rbac.authorization")}
        for name, labels in found.items()
    }
    assert into == {
        "headrace-view": {"view", "edit", "admin"},
        "headrace-edit": {"edit", "admin"},
        "headrace-operator": set(),
        "headrace-picker": set(),
    }
    written = {resource for resource, verbs in (VIEW | EDIT).items() if verbs - READ}
    assert written == EDIT.keys()


def policies(*flags, **values):
    return [m for m in helm.render(values, *flags) if m["kind"] == "ValidatingAdmissionPolicy"]


def test_admission_policies_are_there_wherever_the_api_server_has_them():
    has, has_not = (
        ("--api-versions", "apps/v1/Deployment"),
        "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
    )
    assert len(policies()) == len(policies(*has, "--api-versions", has_not)) == 3
    assert policies(*has) == policies(admissionPolicies={"enabled": False}) == []


def test_each_admission_policy_is_bound_and_denies():
    bindings = [m for m in helm.render() if m["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {b["spec"]["policyName"] for b in bindings} == {p["metadata"]["name"] for p in policies()}
    assert all(b["spec"]["validationActions"] == ["Deny"] for b in bindings)
    assert {p["spec"]["failurePolicy"] for p in policies()} == {"Fail"}
    assert {v.get("reason") for p in policies() for v in p["spec"]["validations"]} == {"Forbidden"}


@pytest.mark.parametrize("allowed", [False, True])
def test_the_policy_for_the_operator_follows_what_users_may_ask_for(allowed):
    settings = {"operator": dict.fromkeys(["allowHostPath", "allowServiceAccountName"], allowed)}
    [policy] = (p for p in policies(**settings) if "-operator" in p["metadata"]["name"])
    text = json.dumps(policy["spec"]["validations"])
    assert ("has(v.hostPath)" in text) == allowed
    assert ("variables.pod.?serviceAccountName" in text) != allowed
    assert all(f"'{prefix}'" in text for prefix in _PRIVILEGES)
    written = {
        resource.partition("/")[2].removesuffix("/status")
        for resource, verbs in OPERATOR.items()
        if verbs & {"create", "patch", "update", "delete"}
    } - {"llmservices", "llmservices/finalizers", "gpupools", "gpupools/finalizers"}
    [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
    assert written | {"leases", "secrets"} == {each.removesuffix("/status") for each in rule["resources"]}


def test_only_the_release_namespace_has_leases_and_only_their_own_can_be_changed():
    for role in (m for m in helm.render({"watchNamespaces": ["llm"]}) if m["kind"] == "Role"):
        for rule in role["rules"]:
            if "leases" in rule["resources"]:
                assert role["metadata"].get("namespace", helm.NAMESPACE) == helm.NAMESPACE
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == [
                    role["metadata"]["name"].removesuffix("-lease")
                ]


def test_of_secrets_only_the_gateways_key_can_be_read():
    for role in (m for m in helm.render() if m["kind"] in {"Role", "ClusterRole"}):
        for rule in role["rules"]:
            if "secrets" in rule["resources"]:
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == ["headrace-gateway-key"]


def test_watched_namespaces_get_a_role_each_and_the_cluster_none():
    manifests = helm.render({"watchNamespaces": ["llm", "chat"]})
    assert roles(manifests, "ClusterRole") == USERS
    assert (
        roles(manifests, "Role")
        == {
            (namespace, f"headrace-{component}"): granted
            for namespace in ("llm", "chat")
            for component, granted in (("operator", OPERATOR), ("picker", PICKER))
        }
        | OF_RELEASE
    )


@pytest.mark.parametrize("watched", [[], ["llm", "chat"]])
def test_each_binding_joins_a_role_to_its_own_account(watched):
    manifests = helm.render({"watchNamespaces": watched})
    bindings = [m for m in manifests if m["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert len(bindings) == 2 * max(1, len(watched)) + len(OF_RELEASE)
    for binding in bindings:
        name = binding["metadata"]["name"]
        assert binding["roleRef"]["name"] == name
        assert binding["kind"] == binding["roleRef"]["kind"] + "Binding"
        [subject] = binding["subjects"]
        account = name.removesuffix("-lease").removesuffix("-gateway-key")
        assert subject == {"kind": "ServiceAccount", "name": account, "namespace": helm.NAMESPACE}
