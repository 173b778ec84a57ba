"""CPU, memory and other resources of the engine container, by the rules that the API server has for pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import StringConstraints, model_validator

from headrace_operator.api.base import Block, rolls, rule, ruled
from headrace_operator.api.formats import DOMAIN_QUALIFIED, Quantity, matches
from headrace_operator.api.quantity import parse_quantity

_PLAIN = ("cpu", "memory", "ephemeral-storage")
_PAGES = "hugepages-[1-9][0-9]*(Ki|Mi|Gi)"
_LONGEST_NAME = 240  # characters
_NAMES = "each resource must be cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME"
_WITHIN = "no request may exceed its limit"
_EQUAL = "requests of hugepages-SIZE and DOMAIN/NAME need an equal limit: they cannot be overcommitted"
_WHOLE = "hugepages-SIZE and DOMAIN/NAME must be whole numbers, and hugepages-SIZE a multiple of SIZE"
_BESIDE = "hugepages-SIZE needs cpu or memory beside it"


_KNOWN = (
    f"k.size() <= {_LONGEST_NAME} && (k in {list(_PLAIN)} || {matches(_PAGES, 'k')} || "
    f"(!k.startsWith('requests.') && {matches(DOMAIN_QUALIFIED, 'k')}))"
)
_OVERCOMMITTED = f"(k in {list(_PLAIN)} || k.contains('kubernetes.io/'))"
_WHOLE_NUMBER = "[0-9]+(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"
_LARGEST = 2**63 - 1
_CEL_AMOUNT = "quantity(string({map}[k]))"
_WHOLE_IN_CEL = (
    f"{_OVERCOMMITTED} || ({matches(_WHOLE_NUMBER, 'string(self[k])')} && "
    f"{_CEL_AMOUNT.format(map='self')}.isInteger() && (!k.startsWith('hugepages-') || "
    f"{_CEL_AMOUNT.format(map='self')}.asInteger() % quantity(k.substring(10)).asInteger() == 0))"
)
_AMOUNTS = {
    "x-kubernetes-validations": [
        rule(f"self.all(k, {_KNOWN})", _NAMES),
        rule(f"self.all(k, {_WHOLE_IN_CEL})", _WHOLE),
    ]
}
_COMPARED = f"{_CEL_AMOUNT.format(map='self.requests')}.compareTo({_CEL_AMOUNT.format(map='self.limits')})"
_ANY = " || ".join(f"(has(self.{name}) && self.{name}.exists(k, {{0}}))" for name in ("requests", "limits"))
_IS_PAGES, _IS_BESIDE = "k.startsWith('hugepages-')", "k in ['cpu', 'memory']"
_BOTH = "!has(self.requests) || self.requests.all(k, {})"

Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]


class Resources(Block):
    """CPU, memory and other resources of the engine container; the operator adds the accelerator."""

    requests: dict[Name, Quantity] = rolls(
        "What the scheduler sets aside.", {}, max_length=16, json_schema_extra=_AMOUNTS
    )
    limits: dict[Name, Quantity] = rolls(
        "What the container may use at most.", {}, max_length=16, json_schema_extra=_AMOUNTS
    )

    model_config = ruled(
        rule(
            _BOTH.format(f"!has(self.limits) || !(k in self.limits) || {_COMPARED} <= 0"),
            _WITHIN,
            ".requests",
        ),
        rule(
            _BOTH.format(f"{_OVERCOMMITTED} || (has(self.limits) && k in self.limits && {_COMPARED} == 0)"),
            _EQUAL,
            ".requests",
        ),
        rule(
            f"!({_ANY.format(_IS_PAGES)}) || {_ANY.format(_IS_BESIDE)}",
            _BESIDE,
        ),
    )

    @model_validator(mode="after")
    def _possible(self) -> Resources:
        for asked in (self.requests, self.limits):
            _check(asked)
        for name, value in self.requests.items():
            limit = self.limits.get(name)
            if limit is not None and parse_quantity(value) > parse_quantity(limit):
                raise ValueError(f"{name}: {_WITHIN}")
            if not _is_overcommitted(name) and (
                limit is None or parse_quantity(value) != parse_quantity(limit)
            ):
                raise ValueError(f"{name}: {_EQUAL}")
        given = {*self.requests, *self.limits}
        if any(name.startswith("hugepages-") for name in given) and not given & {"cpu", "memory"}:
            raise ValueError(_BESIDE)
        return self


def _check(asked: Mapping[str, str | int]) -> None:
    for name, value in asked.items():
        device = re.fullmatch(DOMAIN_QUALIFIED, name) and not name.startswith("requests.")
        known = name in _PLAIN or re.fullmatch(_PAGES, name) or device
        if len(name) > _LONGEST_NAME or not known:
            raise ValueError(f"{name!r}: {_NAMES}")
        if _is_overcommitted(name):
            continue
        whole = re.fullmatch(_WHOLE_NUMBER, str(value)) and parse_quantity(value) <= _LARGEST
        unit = (
            parse_quantity(name.removeprefix("hugepages-"))
            if name.startswith("hugepages-")
            else parse_quantity(1)
        )
        if not whole or parse_quantity(value) % unit:
            raise ValueError(f"{name}: {_WHOLE}")


def _is_overcommitted(name: str) -> bool:
    """Tell whether a node may promise more of it than it has."""
    return name in _PLAIN or "kubernetes.io/" in name
