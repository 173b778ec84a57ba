"""Render the CustomResourceDefinitions of LLMService, LLMRoute and GPUPool from the typed API.

`python -m headrace_operator.api.crd [FOLDER]` writes FOLDER/PLURAL.headrace.dev.yaml of each (default:
crds/ of the working directory). Each policy's settings become a block of `spec.scheduling`, from the
policy's own `Params`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from headrace_engine.policies import registry
from headrace_operator.api import (
    GROUP,
    KIND,
    PLURAL,
    POOL_KIND,
    POOL_PLURAL,
    ROUTE_KIND,
    ROUTE_PLURAL,
    VERSION,
    PoolSpec,
    PoolStatus,
    RouteSpec,
    RouteStatus,
    ServiceStatus,
    Spec,
)
from headrace_operator.api.base import rule
from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.api.serving import block_name
from headrace_operator.api.structural_schema import make_structural_schema


def _name_rule(longest: int) -> dict[str, str]:
    return rule(
        f"self.metadata.name.matches('^[a-z]([-a-z0-9]{{0,{longest - 2}}}[a-z0-9])?$')",
        f"metadata.name must be a DNS label of at most {longest} characters that starts with a letter: "
        "Services are named after it",
    )


_LONGEST_NAME = 50
_LONGEST_POOL_NAME = 35  # its Services have the group's name in theirs
# (name, type, priority, path)
_COLUMNS = (
    ("Accepted", "string", 0, '.status.conditions[?(@.type=="Accepted")].status'),
    ("Ready", "string", 0, '.status.conditions[?(@.type=="Ready")].status'),
    ("Reason", "string", 0, '.status.conditions[?(@.type=="Ready")].reason'),
    ("Desired", "integer", 0, ".status.desiredReplicas"),
    ("Serving", "integer", 0, ".status.readyReplicas"),
    ("Policy", "string", 0, ".status.policy.inForce"),
    ("Applied", "string", 0, '.status.conditions[?(@.type=="PolicyApplied")].status'),
    ("Degraded", "string", 0, '.status.conditions[?(@.type=="Degraded")].status'),
    ("Model", "string", 1, ".spec.model.source"),
    ("URL", "string", 1, ".status.url"),
    ("Age", "date", 0, ".metadata.creationTimestamp"),
)


_ROUTE_COLUMNS = (
    ("Accepted", "string", 0, '.status.conditions[?(@.type=="Accepted")].status'),
    ("Programmed", "string", 0, '.status.conditions[?(@.type=="Programmed")].status'),
    ("Envoys", "integer", 0, ".status.envoys"),
    ("Models", "string", 1, ".spec.models"),
    ("Age", "date", 0, ".metadata.creationTimestamp"),
)
_POOL_COLUMNS = (
    ("Accepted", "string", 0, '.status.conditions[?(@.type=="Accepted")].status'),
    ("Ready", "string", 0, '.status.conditions[?(@.type=="Ready")].status'),
    ("Reason", "string", 0, '.status.conditions[?(@.type=="Ready")].reason'),
    ("Planned", "string", 0, '.status.conditions[?(@.type=="Planned")].status'),
    ("Groups", "string", 1, ".spec.groups[*].name"),
    ("Age", "date", 0, ".metadata.creationTimestamp"),
)
_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def definition() -> JsonObject:
    """Make the CustomResourceDefinition of LLMService."""
    return _definition(KIND, PLURAL, _schema(), _COLUMNS, short_names=["llms"], scale=_SCALE)


def route_definition() -> JsonObject:
    """Make the CustomResourceDefinition of LLMRoute."""
    schema = _object_schema(
        "How requests reach one LLMService. The operator writes it, the gateway's picker reports on it: "
        "change the LLMService of the same name instead.",
        make_structural_schema(RouteSpec),
        make_structural_schema(RouteStatus),
    )
    return _definition(ROUTE_KIND, ROUTE_PLURAL, schema, _ROUTE_COLUMNS)


def pool_definition() -> JsonObject:
    """Make the CustomResourceDefinition of GPUPool."""
    schema = _object_schema(
        "Services whose engines share GPUs, and take turns on them.",
        make_structural_schema(PoolSpec),
        make_structural_schema(PoolStatus),
        longest_name=_LONGEST_POOL_NAME,
    )
    return _definition(POOL_KIND, POOL_PLURAL, schema, _POOL_COLUMNS)


def _definition(
    kind: str,
    plural: str,
    schema: JsonObject,
    columns: Iterable[tuple[str, str, int, str]],
    *,
    short_names: Sequence[str] = (),
    scale: Mapping[str, str] | None = None,
) -> JsonObject:
    singular = {"plural": plural, "singular": kind.lower()}
    short = {"shortNames": list(short_names)} if short_names else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                **singular,
                **short,
                "categories": ["headrace"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": [
                        {"name": name, "type": type_, "priority": priority, "jsonPath": path}
                        for name, type_, priority, path in columns
                    ],
                    "subresources": {"status": {}, **({"scale": dict(scale)} if scale else {})},
                }
            ],
        },
    }


def _schema() -> JsonObject:
    spec = make_structural_schema(Spec)
    scheduling = spec["properties"]["scheduling"]["properties"]
    scheduling.update(_policy_blocks())
    text = "One model, served by any number of vLLM replicas behind one name."
    return _object_schema(text, spec, make_structural_schema(ServiceStatus))


def _object_schema(
    text: str, spec: JsonObject, status: JsonObject, *, longest_name: int = _LONGEST_NAME
) -> JsonObject:
    return {
        "type": "object",
        "description": text,
        "required": ["spec"],
        "x-kubernetes-validations": [_name_rule(longest_name)],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            # Without one, kstatus calls an object current that nobody has looked at.
            "status": {**status, "default": {}},
        },
    }


def _policy_blocks() -> JsonObject:
    """Make the schemas of each policy's settings, if it has any, under the policy's block name."""
    blocks: JsonObject = {}
    for name in registry.policy_names():
        schema = registry.parameter_schema(name)
        if schema.get("properties"):
            blocks[block_name(name)] = {
                "type": "object",
                "description": f"Settings of {name}; kept but unused with other policies. A change is live.",
                "properties": {key: _setting(value) for key, value in schema["properties"].items()},
            }
    return blocks


def _setting(schema: JsonObject) -> JsonObject:
    return {
        **schema,
        "description": f"{schema['description']} A change is live. Default: {schema['default']}.",
    }


def render_yaml(definition: Body) -> str:
    """Write a definition as YAML."""
    header = "# Generated by `make generate` from operator/src/headrace_operator/api; edit that instead.\n"
    return header + yaml.safe_dump(definition, sort_keys=False, width=110)


def definition_files() -> dict[str, str]:
    """Return all definitions as YAML, by the names of their files."""
    definitions = (definition(), route_definition(), pool_definition())
    return {f"{each['metadata']['name']}.yaml": render_yaml(each) for each in definitions}


def main() -> None:
    """Write all definitions into the folder of CRDs."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "crds")
    folder.mkdir(exist_ok=True)
    for name, text in definition_files().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
