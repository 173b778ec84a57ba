"""Raw JSON objects: what the API server sends, and what is sent to it.

Values are `Any`, because the operator reads nested fields of objects whose form the API server guarantees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Body = Mapping[str, Any]
"""An object, or a part of one, that is only read."""

JsonObject = dict[str, Any]
"""An object, or a part of one, that is made here or may be changed."""


def is_ending(body: Body) -> bool:
    """Tell whether an object was deleted and is still there: a pod drains, or a claim has pods."""
    return "deletionTimestamp" in body["metadata"]
