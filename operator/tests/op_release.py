"""What the chart installs for the operator's account, on the tests' API server: roles and admission policies.

The operators of the tests then run by that account, as in a cluster. Only their Leases have other names.
"""

import json

from op_kube import Kube, ok

from e2e import helm

ACCOUNT = "headrace-operator"
USER = f"system:serviceaccount:{helm.NAMESPACE}:{ACCOUNT}"
LEASE = f"object.metadata.name == '{ACCOUNT}'"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_POLICIES = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{helm.NAMESPACE}/serviceaccounts",
    "Role": f"{_RBAC}/namespaces/{helm.NAMESPACE}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{helm.NAMESPACE}/rolebindings",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{_POLICIES}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_POLICIES}/validatingadmissionpolicybindings",
}


def install(apiserver):
    """Install them, once; writes `operator.kubeconfig` into the API server's folder."""
    if kubeconfig(apiserver).exists():
        return
    kube = Kube(apiserver, helm.NAMESPACE)
    ok(kube.http.post("/api/v1/namespaces", json={"metadata": {"name": helm.NAMESPACE}}))
    for manifest in helm.render():
        if manifest["kind"] in PATHS:
            ok(kube.http.post(PATHS[manifest["kind"]], json=_any_lease(manifest)))
    config = json.dumps(_kubeconfig(apiserver, token(apiserver)))
    kubeconfig(apiserver).write_text(config)
    kube.close()


def kubeconfig(apiserver):
    """By which the operator's account speaks."""
    return apiserver.folder / "operator.kubeconfig"


def token(apiserver, account=ACCOUNT):
    """A new token of the account."""
    kube = Kube(apiserver, helm.NAMESPACE)
    path = f"{PATHS['ServiceAccount']}/{account}/token"
    found = ok(kube.http.post(path, json={"spec": {"expirationSeconds": 7200}}))["status"]["token"]
    kube.close()
    return found


def _any_lease(manifest):
    """The same for Leases of any name: each operator of the tests has one of its own."""
    text = json.dumps(manifest)
    if manifest["kind"] == "ValidatingAdmissionPolicy" and USER in text:
        assert "operator" not in manifest["metadata"]["name"] or LEASE in text
        return json.loads(text.replace(LEASE, "true"))
    if manifest["kind"] == "Role":
        for rule in manifest["rules"]:
            rule.pop("resourceNames", None)
    return manifest


def _kubeconfig(apiserver, operator_token):
    cluster = {"server": apiserver.url, "certificate-authority": str(apiserver.folder / "pki" / "ca.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": operator_token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
