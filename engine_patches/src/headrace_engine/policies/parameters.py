"""A policy's parameters: declared once as dataclass fields, read as JSON schema, validator and docs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from headrace_engine.contracts import ContractError

P = TypeVar("P")


def doc(description: str, *, unit: str, minimum: int, maximum: int) -> dict[str, Any]:
    """Metadata of an integer parameter; bounds are inclusive."""
    return {"description": description, "unit": unit, "minimum": minimum, "maximum": maximum}


def schema(params: type) -> dict[str, Any]:
    """JSON schema (and Kubernetes structural schema) of a policy's `Params`, keys in camelCase."""
    return {"type": "object", "properties": {_camel(f.name): _field_schema(f) for f in _fields(params)}}


def parse(params: type[P], values: Mapping[str, Any], where: str) -> P:
    """`params` from a document's values; raises ContractError naming the key below `where`."""
    known = {_camel(field.name): field for field in _fields(params)}
    for key in values:
        if key not in known:
            expected = ", ".join(known) or "none"
            raise ContractError(f"{where}.{key}: unknown parameter; known: {expected}")
    given = {known[key].name: _bounded(value, known[key], f"{where}.{key}") for key, value in values.items()}
    return params(**given)


def _bounded(value: Any, field: dataclasses.Field[Any], where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ContractError(f"{where}: expected an integer, got {value!r}")
    low, high = field.metadata["minimum"], field.metadata["maximum"]
    if not low <= value <= high:
        raise ContractError(f"{where}: {value} is outside {low} to {high}")
    return value


def _field_schema(field: dataclasses.Field[Any]) -> dict[str, Any]:
    about = field.metadata
    return {
        "type": "integer",
        "description": f"{about['description']} In {about['unit']}.",
        "default": field.default,
        "minimum": about["minimum"],
        "maximum": about["maximum"],
    }


def _fields(params: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(params)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
