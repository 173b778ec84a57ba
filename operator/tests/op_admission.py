"""A real ValidatingAdmissionPolicy of a cluster's own, which denies images in one namespace."""

from contextlib import contextmanager

from op_kube import eventually, ok

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
WORDS = "images come from registry.example"
DEPLOYMENTS = {
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["deployments"],
}


@contextmanager
def images_denied(kube, prefix):
    """No Deployment with an image that begins so, in the namespace of `kube`; gives the policy's name."""
    name, where = (
        f"images-{kube.namespace}",
        {"matchLabels": {"kubernetes.io/metadata.name": kube.namespace}},
    )
    rule = f"object.spec.template.spec.containers.all(c, !c.image.startsWith('{prefix}'))"
    rules = {"matchConstraints": {"resourceRules": [DEPLOYMENTS], "namespaceSelector": where}}
    rules |= {"failurePolicy": "Fail", "validations": [{"expression": rule, "message": WORDS}]}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    plurals = {"validatingadmissionpolicies": rules, "validatingadmissionpolicybindings": binding}
    for plural, spec in plurals.items():
        ok(kube.http.post(f"{ADMISSION}/{plural}", json={"metadata": {"name": name}, "spec": spec}))
    try:
        eventually(lambda: WORDS in kube.create("deployments", probe(f"{prefix}x")).text)
        yield name
    finally:
        for plural in reversed(plurals):
            ok(kube.http.delete(f"{ADMISSION}/{plural}/{name}"))


def probe(image):
    """A Deployment that is made only if nothing denies it."""
    container = {"name": "x", "image": image}
    template = {"metadata": {"labels": {"x": "x"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"x": "x"}}, "template": template}
    return {"metadata": {"generateName": "probe-"}, "spec": spec}
