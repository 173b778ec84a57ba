"""What the chart lets Headrace do in a cluster. A wider permission must be argued for here."""

import pytest

from e2e import helm

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]  # in the tier whose preparation builds Helm

WRITE = {"get", "list", "watch", "create", "patch"}
OPERATOR = {
    "headrace.dev/llmservices": {"get", "list", "watch"},
    "headrace.dev/llmservices/status": {"patch"},
    "headrace.dev/llmservices/finalizers": {"update"},
    "apps/deployments": WRITE,
    "apps/replicasets": {"get"},
    "/services": WRITE,
    "headrace.dev/llmroutes": WRITE,
    "/configmaps": WRITE | {"delete"},
    "networking.k8s.io/networkpolicies": WRITE,
    "policy/poddisruptionbudgets": WRITE,
    "resource.k8s.io/resourceclaimtemplates": WRITE | {"delete"},
    "/pods": {"get", "list", "watch", "patch"},
    "/persistentvolumeclaims": {"get"},
    "events.k8s.io/events": {"create", "patch"},
}
LEASE = {"coordination.k8s.io/leases": {"create", "get", "update"}}
PICKER = {
    "headrace.dev/llmroutes": {"list", "watch"},
    "discovery.k8s.io/endpointslices": {"list", "watch"},
}
LEASES = {(None, "headrace-operator-lease"): LEASE, (None, "headrace-picker-lease"): LEASE}


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
    assert roles(manifests, "ClusterRole") == {
        (None, "headrace-operator"): OPERATOR,
        (None, "headrace-picker"): PICKER,
    }
    assert roles(manifests, "Role") == LEASES


def test_only_the_release_namespace_has_leases_and_only_their_own_can_be_changed():
    for role in (m for m in helm.render({"watchNamespaces": ["llm"]}) if m["kind"] == "Role"):
        for rule in role["rules"]:
            if "leases" in rule["resources"]:
                assert role["metadata"].get("namespace", helm.NAMESPACE) == helm.NAMESPACE
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == [
                    role["metadata"]["name"].removesuffix("-lease")
                ]


def test_watched_namespaces_get_a_role_each_and_the_cluster_none():
    manifests = helm.render({"watchNamespaces": ["llm", "chat"]})
    assert not roles(manifests, "ClusterRole")
    assert (
        roles(manifests, "Role")
        == {
            (namespace, f"headrace-{component}"): granted
            for namespace in ("llm", "chat")
            for component, granted in (("operator", OPERATOR), ("picker", PICKER))
        }
        | LEASES
    )


@pytest.mark.parametrize("watched", [[], ["llm", "chat"]])
def test_each_binding_joins_a_role_to_its_own_account(watched):
    manifests = helm.render({"watchNamespaces": watched})
    bindings = [m for m in manifests if m["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert len(bindings) == 2 * max(1, len(watched)) + len(LEASES)
    for binding in bindings:
        name = binding["metadata"]["name"]
        assert binding["roleRef"]["name"] == name
        assert binding["kind"] == binding["roleRef"]["kind"] + "Binding"
        [subject] = binding["subjects"]
        account = name.removesuffix("-lease")
        assert subject == {"kind": "ServiceAccount", "name": account, "namespace": helm.NAMESPACE}
