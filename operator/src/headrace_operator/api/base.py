"""The grammar of the API's types: blocks, durations, quantities, rules, and what a change of a field does.

Every block of an LLMService is a frozen pydantic model with camelCase keys. The same classes give the CRD's
schema (`api.crd`), so a bound, default or rule is written once: the API server enforces it, and parsing
repeats it for objects that were stored under an older CRD.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from headrace_engine.contracts.codec import camel
from headrace_operator.api.bodies import JsonObject

_DURATION = r"^[1-9][0-9]{0,5}(ms|s|m|h)$"
_DURATION_ADVICE = "must be a positive whole number with a unit, such as 500ms, 30s, 5m or 1h"
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


class Block(BaseModel):
    """One object of the API; unknown keys are dropped, as the API server does."""

    # Not pydantic's own generator, which writes `e2E` for `e2e`.
    model_config = ConfigDict(frozen=True, alias_generator=camel, populate_by_name=True, extra="ignore")

    def as_body(self) -> JsonObject:
        """Return it as an object of Kubernetes has it: JSON, without what is unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @model_validator(mode="after")
    def _no_item_twice(self) -> Self:
        for field, info in type(self).model_fields.items():
            extra = info.json_schema_extra
            keys = extra.get("x-kubernetes-list-map-keys", ()) if isinstance(extra, dict) else ()
            found = [item.as_body() for item in getattr(self, field)] if keys else []
            names = [tuple(item.get(key) for key in keys) for item in found]  # type: ignore[union-attr]
            for name in {name for name in names if names.count(name) > 1}:
                raise ValueError(f"{camel(field)}: {', '.join(map(str, name))} is there twice: leave one out")
        return self


ATOMIC: JsonObject = {"x-kubernetes-list-type": "atomic"}


def list_map(*keys: str) -> JsonObject:
    """Make the schema of a list whose items these fields tell apart, so that each writer may have some."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


# Not a boolean or a text, which pydantic would convert and the API server refuses.
Integer = Annotated[int, Strict()]


def rule(cel: str, message: str, field: str = "") -> dict[str, str]:
    """Return one CEL rule for `x-kubernetes-validations`; the message tells a user what to write instead.

    `field` is the path, from where the rule stands, of the field that the API server is to blame, such as
    `.tokens`; unset: where the rule stands.
    """
    return {"rule": cel, "message": message, **({"fieldPath": field} if field else {})}


def exactly_one(fields: Iterable[str], message: str) -> dict[str, str]:
    """Write in CEL that exactly one of the fields is set; `check_one` is the same for parsing."""
    given = ", ".join(f"has(self.{field})" for field in fields)
    return rule(f"[{given}].filter(x, x).size() == 1", message)


def check_one(values: Iterable[object], message: str) -> None:
    """Raise ValueError with the message unless exactly one of the values is not None."""
    if sum(value is not None for value in values) != 1:
        raise ValueError(message)


def ruled(*rules: dict[str, str]) -> ConfigDict:
    """Make the model configuration of a block with CEL rules."""
    extra: JsonObject = {"x-kubernetes-validations": list(rules)}
    return ConfigDict(json_schema_extra=extra)


def live(text: str, default: Any = ..., **bounds: Any) -> Any:
    """Declare a field whose change takes effect in running pods without a restart."""
    return Field(default, description=f"{text} A change is live.", **bounds)


def rolls(text: str, default: Any = ..., **bounds: Any) -> Any:
    """Declare a field whose change replaces the pods one after the other."""
    return Field(default, description=f"{text} A change rolls the pods.", **bounds)


def milliseconds(duration: str) -> int:
    """Return the milliseconds of a duration such as `500ms`; ValueError says what a duration looks like."""
    if not re.fullmatch(_DURATION, duration):
        raise ValueError(f"{duration!r} {_DURATION_ADVICE}")
    number = duration.rstrip("msh")
    return int(number) * _UNIT_MS[duration.removeprefix(number)]


def _checked(duration: str) -> str:
    milliseconds(duration)
    return duration


def is_duration(field: str) -> str:
    """Write in CEL that the field is set and well-formed."""
    return f"(has(self.{field}) && self.{field}.matches('{_DURATION}'))"


def shorter_or_equal(left: str, right: str) -> str:
    """Write in CEL that `left` is not longer than `right`, where both are set and well-formed."""
    ready = " && ".join(map(is_duration, (left, right)))
    return f"!({ready}) || duration(self.{left}) <= duration(self.{right})"


Duration = Annotated[
    str,
    AfterValidator(_checked),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 16,
            "x-kubernetes-validations": [rule(f"self.matches('{_DURATION}')", _DURATION_ADVICE)],
        }
    ),
]

# A Kubernetes object that is handed on as it is; the API server checks it when the pod is made.
Verbatim = Annotated[
    JsonObject, WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]

Word = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Client = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
RequestsPerMinute = Annotated[Integer, Field(ge=1, le=10_000_000)]
"""Who has an API key: the name of an entry of a Secret."""
Text = Annotated[str, StringConstraints(max_length=4096)]
