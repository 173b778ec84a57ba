"""From a pydantic model to the structural schema that a CustomResourceDefinition takes.

Structural schemas know no `$ref`, no `null` branches and no titles. Each description ends with the default,
so that `kubectl explain` tells it.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from headrace_operator.api.bodies import JsonObject

Schema = JsonObject


def make_structural_schema(model: type[BaseModel]) -> Schema:
    """Make the structural schema of a model, references resolved."""
    schema = model.model_json_schema(by_alias=True)
    return _convert(schema, schema.get("$defs", {}))


def _convert(schema: Schema, definitions: Schema) -> Schema:
    schema = _resolve(schema, definitions)
    result: Schema = {
        key: value
        for key, value in schema.items()
        if key not in {"title", "$defs", "properties", "items", "default"}
    }
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "properties" in schema:
        result["properties"] = {
            name: _convert(value, definitions) for name, value in schema["properties"].items()
        }
    if "items" in schema:
        result["items"] = _convert(schema["items"], definitions)
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = _convert(schema["additionalProperties"], definitions)
    else:
        result.pop("additionalProperties", None)
    result.pop("propertyNames", None)
    _add_default(result, schema.get("default"))
    return result


def _resolve(schema: Schema, definitions: Schema) -> Schema:
    """Follow `$ref` and drop the null branch of an optional field; the field's own keywords win."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[1]]
        outer = {key: value for key, value in schema.items() if key != "$ref"}
        return _resolve({**target, **outer}, definitions)
    branches = schema.get("anyOf", [])
    concrete = [branch for branch in branches if branch.get("type") != "null"]
    if len(concrete) == 1:
        outer = {key: value for key, value in schema.items() if key != "anyOf"}
        return _resolve({**concrete[0], **outer}, definitions)
    return schema


def _add_default(result: Schema, default: Any) -> None:
    if default is None or default in ([], {}):
        return
    if isinstance(default, dict):
        result["default"] = _without_unset(default)
        return
    result["default"] = default
    if default == "":
        return
    result["description"] = f"{result.get('description', '')} Default: {_shown(default)}."


def _without_unset(default: Schema) -> Schema:
    """Spell out a block's default: its rules are evaluated on it before inner defaults are filled in."""
    return {
        key: _without_unset(value) if isinstance(value, dict) else value
        for key, value in default.items()
        if value not in (None, [], {})
    }


def _shown(default: Any) -> str:
    return default if isinstance(default, str) else json.dumps(default)
