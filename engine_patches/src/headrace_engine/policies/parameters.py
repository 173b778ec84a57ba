"""A policy's parameters: declared once as dataclass fields, read as JSON schema, validator and docs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from headrace_engine.contracts import ContractError

P = TypeVar("P")


def doc(description: str, *, unit: str, minimum: int, maximum: int) -> dict[str, Any]:
    """Declare an integer parameter; bounds are inclusive."""
    return {
        "type": "integer",
        "description": f"{description} In {unit}.",
        "minimum": minimum,
        "maximum": maximum,
    }


def choice(description: str, *options: str) -> dict[str, Any]:
    """Declare a string parameter that is one of `options`."""
    return {"type": "string", "description": description, "enum": list(options)}


def flag(description: str) -> dict[str, Any]:
    """Declare a boolean parameter."""
    return {"type": "boolean", "description": description}


def schema(params: type) -> dict[str, Any]:
    """Make the JSON schema (and Kubernetes structural schema) of a policy's `Params`, keys in camelCase."""
    properties = {_camel(f.name): {**f.metadata, "default": f.default} for f in _fields(params)}
    return {"type": "object", "properties": properties}


def parse(params: type[P], values: Mapping[str, Any], where: str) -> P:
    """Read `params` from a document's values; raises ContractError naming the key below `where`."""
    known = {_camel(field.name): field for field in _fields(params)}
    for key in values:
        if key not in known:
            expected = ", ".join(known) or "none"
            raise ContractError(f"{where}.{key}: unknown parameter; known: {expected}")
    given = {
        known[key].name: _checked(value, known[key].metadata, f"{where}.{key}")
        for key, value in values.items()
    }
    return params(**given)


def _checked(value: Any, about: Mapping[str, Any], where: str) -> Any:
    if about["type"] == "boolean":
        if not isinstance(value, bool):
            raise ContractError(f"{where}: expected true or false, got {value!r}")
    elif about["type"] == "string":
        if value not in about["enum"]:
            raise ContractError(f"{where}: {value!r} is not one of {', '.join(about['enum'])}")
    elif not isinstance(value, int) or isinstance(value, bool):
        raise ContractError(f"{where}: expected an integer, got {value!r}")
    elif not about["minimum"] <= value <= about["maximum"]:
        raise ContractError(f"{where}: {value} is outside {about['minimum']} to {about['maximum']}")
    return value


def _fields(params: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(params)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
