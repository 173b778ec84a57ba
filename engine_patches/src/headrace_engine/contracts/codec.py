"""JSON for the contract dataclasses: snake_case fields, camelCase keys, errors that name the key.

`None` is written as an absent key. Decoding checks types, fills defaults, ignores unknown keys and refuses
documents whose `schema` is newer than the class's own.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class ContractError(ValueError):
    """A document does not follow its contract; the message names the key and what was expected."""


def dumps(document: object) -> str:
    """Write canonical JSON: sorted keys, no spaces; equal documents give equal text."""
    return json.dumps(encode(document), sort_keys=True, separators=(",", ":"))


def loads(cls: type[T], text: str | bytes) -> T:
    """Parse JSON text into `cls`; raises ContractError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{cls.__name__}: not JSON: {error}") from error
    return decode(cls, data)


def text_hash(text: bytes) -> str:
    """Return 16 hex digits, by which readers tell one text from another; also fits a 64-bit field."""
    return hashlib.sha256(text).hexdigest()[:16]


def encode(value: Any) -> Any:
    """Turn a contract dataclass into plain JSON data, recursively."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            camel(field.name): encode(item)
            for field in dataclasses.fields(value)
            if (item := getattr(value, field.name)) is not None
        }
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def decode(cls: type[T], data: Any, path: str = "") -> T:
    """Build `cls` from JSON data; raises ContractError naming the offending key."""
    where = path or cls.__name__
    if not isinstance(data, dict):
        raise ContractError(f"{where}: expected an object, got {_kind(data)}")
    _refuse_newer_schema(cls, data, where)
    hints = _hints(cls)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        key = camel(field.name)
        if key in data:
            values[field.name] = _convert(hints[field.name], data[key], f"{where}.{key}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ContractError(f"{where}.{key}: missing")
    try:
        return cls(**values)
    except ContractError:
        raise
    except ValueError as error:
        raise ContractError(f"{where}: {error}") from error


def _refuse_newer_schema(cls: type, data: dict[str, Any], where: str) -> None:
    defaults: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(cls)}
    own = defaults.get("schema")
    given = data.get("schema", own)
    if own is not None and (not isinstance(given, int) or given > own):
        known = f"this reader knows up to {own}"
        raise ContractError(f"{where}.schema: version {given} is not understood, {known}")


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(hint, value, where)
    if dataclasses.is_dataclass(hint):
        return decode(hint, value, where)  # type: ignore[arg-type]
    if origin is typing.Literal:
        if value not in typing.get_args(hint):
            choices = ", ".join(map(str, typing.get_args(hint)))
            raise ContractError(f"{where}: {value!r} is not one of {choices}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError(f"{where}: expected a list, got {_kind(value)}")
        item_hint = typing.get_args(hint)[0]
        return tuple(_convert(item_hint, item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        return _expect(dict, value, where)
    return _expect(hint, value, where)


def _convert_union(hint: Any, value: Any, where: str) -> Any:
    options = typing.get_args(hint)
    if value is None and type(None) in options:
        return None
    wanted = [option for option in options if option is not type(None)]
    if len(wanted) == 1:
        return _convert(wanted[0], value, where)
    for option in wanted:
        try:
            return _convert(option, value, where)
        except ContractError:
            continue
    raise ContractError(f"{where}: unexpected {_kind(value)}")


def _expect(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ContractError(f"{where}: expected {kind.__name__}, got {_kind(value)}")
    return value


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@functools.cache
def camel(name: str) -> str:
    """Write a snake_case field name as its camelCase key."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), f"the number {value!r}"
    )
