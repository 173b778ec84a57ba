"""Values of a type hint, as JSON: what a client may put into a field, at random and at the edges.

Understands what the `openai` client's parameters (TypedDict) and vLLM's own (pydantic) are made of. Types
refer to themselves and to each other, so below `DEEPEST` levels only what is required is given.
"""

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import hypothesis
import typing_extensions
from hypothesis import strategies as st
from pydantic import BaseModel

T = TypeVar("T")
Values = st.SearchStrategy[Any]

DEEPEST = 4
_REQUIRED: tuple[Any, ...] = (typing.Required, typing_extensions.Required)
_WRAPPERS = (*_REQUIRED, typing.NotRequired, typing_extensions.NotRequired, typing.Annotated)
_LISTS = (list, collections.abc.Iterable, collections.abc.Sequence, tuple, set)
_MAPPINGS = (dict, collections.abc.Mapping)


def weighted(*choices: tuple[int, Values]) -> Values:
    """Choose one of these, as often as its weight says; `one_of` leaves out what is given twice."""
    return st.sampled_from([each for weight, each in choices for _ in range(weight)]).flatmap(
        lambda each: each
    )


INTEGERS = weighted(
    (12, st.integers(-2, 40)),
    (4, st.sampled_from([2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63)])),
    (1, st.just(2**63)),
)
NUMBERS = weighted(
    (6, st.floats(-2, 2)),
    (2, st.sampled_from([0, 1, -1, 0.0, -0.0, 1e-300, 1e300, -1e300, 5e-324])),
    (2, INTEGERS),
)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.sampled_from(
        ["", " ", "\0", "\x7f", "é\u0301", "\u202e", "\U0001f468\u200d\U0001f4bb", "</s>", "{{1}}"]
    ),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(-1e9, 1e9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
_PLAIN: Mapping[Any, Values] = {
    str: TEXTS,
    bytes: TEXTS,
    int: INTEGERS,
    float: NUMBERS,
    bool: st.booleans(),
    type(None): st.none(),
    None: st.none(),
    dict: st.dictionaries(TEXTS, ANYTHING, max_size=3),
    list: st.lists(ANYTHING, max_size=3),
}


def values(hint: Any, depth: int = 0) -> Values:
    """Make what a field of this type may hold; of a type that is not understood, anything."""
    while get_origin(hint) in _WRAPPERS:
        hint = get_args(hint)[0]
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values(each, depth) for each in arguments))
    if origin in _LISTS:
        return _deferred(lambda: st.lists(values(arguments[0], depth + 1), max_size=3), depth, [])
    if origin in _MAPPINGS:
        return st.dictionaries(TEXTS, values(arguments[1], depth + 1), max_size=3)
    if typing_extensions.is_typeddict(hint) or _is_record(hint):
        return st.deferred(lambda: _record(hint, depth))
    return ANYTHING


def fields(record: Any) -> dict[str, Any]:
    """List the fields of a TypedDict, a pydantic model or a dataclass, and their types."""
    if isinstance(record, type) and issubclass(record, BaseModel):
        return {name: field.annotation for name, field in record.model_fields.items()}
    hints = typing_extensions.get_type_hints(record, include_extras=True)
    if dataclasses.is_dataclass(record):
        return {each.name: hints[each.name] for each in dataclasses.fields(record) if each.init}
    return hints


def drawn(wanted: st.SearchStrategy[T], seed: int) -> T:
    """Draw one value of this strategy, the same for the same seed."""
    found: list[T] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(wanted)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found[-1]  # the first is the simplest that there is


def _record(hint: Any, depth: int) -> Values:
    every = fields(hint)
    required = _required(hint)
    needed = st.fixed_dictionaries(
        {name: values(every[name], depth + 1) for name in every if name in required}
    )
    others = {name: values(each, depth + 1) for name, each in every.items() if name not in required}
    if not others or depth >= DEEPEST:
        return needed
    return st.builds(lambda one, two: {**one, **two}, needed, _some(others))


def _some(choices: Mapping[str, Values]) -> Values:
    names = st.lists(st.sampled_from(sorted(choices)), max_size=3, unique=True)
    return names.flatmap(lambda those: st.fixed_dictionaries({name: choices[name] for name in those}))


def _required(hint: Any) -> frozenset[str]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return frozenset(name for name, field in hint.model_fields.items() if field.is_required())
    if dataclasses.is_dataclass(hint):
        return frozenset()
    # annotations that are strings hide Required from `__required_keys__`
    hints = typing_extensions.get_type_hints(hint, include_extras=True)
    marked = {name for name, each in hints.items() if get_origin(each) in _REQUIRED}
    return frozenset(marked | (set() if not hint.__total__ else set(hints)))


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint))


def _deferred(made: Callable[[], Values], depth: int, instead: Any) -> Values:
    return st.deferred(made) if depth < DEEPEST else st.just(instead)
