"""Render the CustomResourceDefinition of LLMService from the typed API.

`python -m headrace_operator.crd [FOLDER]` writes FOLDER/llmservices.headrace.dev.yaml (default: crds/ of
the working directory). Each policy's settings become a block of `spec.scheduling`, from the policy's own
`Params`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from headrace_engine.policies import registry
from headrace_operator.api import GROUP, KIND, PLURAL, VERSION, ServiceStatus, Spec
from headrace_operator.api.base import rule
from headrace_operator.api.serving import block_name
from headrace_operator.structural import structural

FILE = f"{PLURAL}.{GROUP}.yaml"

_NAME_RULE = rule(
    "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,48}[a-z0-9])?$')",
    "metadata.name must be a DNS label of at most 50 characters that starts with a letter: Services "
    "are named after it",
)
# (name, type, priority, path)
_COLUMNS = (
    ("Ready", "string", 0, '.status.conditions[?(@.type=="Ready")].status'),
    ("Replicas", "integer", 0, ".status.readyReplicas"),
    ("Policy", "string", 0, ".spec.scheduling.policy"),
    ("Applied", "string", 0, '.status.conditions[?(@.type=="PolicyApplied")].status'),
    ("Model", "string", 0, ".spec.model.source"),
    ("Reason", "string", 1, '.status.conditions[?(@.type=="Ready")].reason'),
    ("Age", "date", 0, ".metadata.creationTimestamp"),
)


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["llms"],
                "categories": ["headrace"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _schema()},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "priority": priority, "jsonPath": path}
                        for name, kind, priority, path in _COLUMNS
                    ],
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                }
            ],
        },
    }


def _schema() -> dict[str, Any]:
    spec = structural(Spec)
    scheduling = spec["properties"]["scheduling"]["properties"]
    scheduling.update(_policy_blocks())
    return {
        "type": "object",
        "description": "One model, served by any number of vLLM replicas behind one name.",
        "required": ["spec"],
        "x-kubernetes-validations": [_NAME_RULE],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural(ServiceStatus),
        },
    }


def _policy_blocks() -> dict[str, Any]:
    """Settings of each policy that has any, under the policy's block name."""
    blocks: dict[str, Any] = {}
    for name in registry.names():
        schema = registry.parameter_schema(name)
        if schema.get("properties"):
            text = f"Settings of {name}; kept but unused with other policies. A change is live."
            blocks[block_name(name)] = {
                "type": "object",
                "description": text,
                "properties": schema["properties"],
            }
    return blocks


def render() -> str:
    """The definition as YAML."""
    header = "# Generated from the typed API by `make generate`; edit operator/src/headrace_operator/api
    instead.\n" return header + yaml.safe_dump(definition(), sort_keys=False, width=110)


def main() -> None:
    """Write the file."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "crds")
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(render())


if __name__ == "__main__":
    main()
