"""Kubernetes objects as the picker gets them."""


def llmroute(namespace="llm", name="chat", *, owner="chat", uid="1", generation=1, status=None, **spec):
    """A route that the operator wrote; `owner` empty: one that nobody owns."""
    reference = {"apiVersion": "headrace.dev/v1alpha1", "kind": "LLMService", "name": owner, "uid": "u"}
    if owner == "chat":
        reference["name"] = name
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "LLMRoute",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": uid,
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [reference] if owner else [],
        },
        "spec": {"models": [name], "servedName": name, **spec},
        "status": status or {},
    }


def endpoint_slice(*endpoints, family="IPv4", service="chat", namespace="llm", of=None, name="x"):
    """Pairs of address and conditions; `of`: the Service that Kubernetes made it for.

    The UID of the pod at each address is `pod-` and that address.
    """
    labels = {
        "app.kubernetes.io/managed-by": "headrace",
        "headrace.dev/service": service,
        "kubernetes.io/service-name": of or service,
    }
    return {
        "metadata": {"namespace": namespace, "name": f"{name}-{service}-{family}".lower(), "labels": labels},
        "addressType": family,
        "endpoints": [
            {
                "addresses": [address],
                "conditions": conditions,
                "targetRef": {"kind": "Pod", "uid": f"pod-{address}", "name": f"{service}-6d4f9c7b8-abcde"},
            }
            for address, conditions in endpoints
        ],
        "ports": [{"name": "http", "port": 8000}],
    }
