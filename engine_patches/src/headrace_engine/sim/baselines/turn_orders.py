"""Orders in which engines that share a GPU have their turns, to compare with: less goes first.

| name         | whose turn is next                                                                      |
|--------------|-----------------------------------------------------------------------------------------|
| oldest_first | whose oldest request came first: sharing in order of arrival, as AlpaServe              |
| in_rotation  | everybody's, one step each: round robin, as MuxServe                                    |
| by_level     | whose best request is in the highest level of a skip-join feedback queue, as FastServe  |
"""

from __future__ import annotations

from math import inf
from typing import Any

from headrace_engine.sim.baselines.feedback_queue import level


def oldest_first(scheduler: Any) -> float:
    """Return when the oldest request came that has not finished."""
    oldest = next(iter(scheduler.requests.values()), None)
    return inf if oldest is None else float(oldest.arrival_time)


def in_rotation(scheduler: Any) -> float:  # noqa: ARG001
    """Return the same for all: equals alternate."""
    return 0.0


def by_level(scheduler: Any) -> float:
    """Return the highest level that one of the requests is in; 0 is the first."""
    requests = scheduler.requests.values()
    return min((level(each.num_prompt_tokens, each.num_output_tokens) for each in requests), default=inf)
