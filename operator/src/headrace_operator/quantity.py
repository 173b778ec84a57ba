"""Kubernetes quantities: `1024Mi` and `1Gi` are the same, and the API server may write either."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"^(\d+(?:\.\d+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")
_FACTORS: dict[str | None, Decimal] = {
    None: Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


def same_quantity(left: Any, right: Any) -> bool:
    """Whether both are quantities of equal amount."""
    amounts = [_amount(value) for value in (left, right)]
    return None not in amounts and amounts[0] == amounts[1]


def _amount(value: Any) -> Decimal | None:
    match = (
        _QUANTITY.match(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    )
    return Decimal(match[1]) * _FACTORS[match[2]] if match else None
