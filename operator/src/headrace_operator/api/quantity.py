"""Kubernetes quantities: `1024Mi` and `1Gi` are the same, and the API server may write either."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Any

_QUANTITY = re.compile(r"^(\d+(?:\.\d+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")
_FACTORS: dict[str | None, Fraction] = {
    None: Fraction(1),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


def parse_quantity(quantity: str | int) -> Fraction:
    """Read how much a quantity is; ValueError if it is none."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{quantity!r} is no quantity")
    return Fraction(match[1]) * _FACTORS[match[2]]


def same_quantity(left: Any, right: Any) -> bool:
    """Tell whether both quantities are equal, rounded up to thousandths as the API server does."""
    try:
        return ceil(parse_quantity(left) * 1000) == ceil(parse_quantity(right) * 1000)
    except ValueError:
        return False
