"""How much of a queue one step looks at, however long the queue is."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Any

from headrace_engine.policies.engine_view import RequestView

PLACED_PER_STEP = 128  # requests that one step puts in their place, at most
ROTATED_PER_STEP = 8  # of those that have a place, looked at anew: the prefix cache changes while they wait


def rotate_waiting(waiting: OrderedDict[RequestView, Any]) -> list[RequestView]:
    """Return the first few of `waiting`, and put them behind the others."""
    first = list(islice(waiting, ROTATED_PER_STEP))
    for request in first:
        waiting.move_to_end(request)
    return first
