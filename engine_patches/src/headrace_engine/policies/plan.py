"""What a policy decides for one step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace_engine.policies.engine_view import RequestView


@dataclass(frozen=True, slots=True)
class RunningLimits:
    """What running requests may do in this step. Every request named is in `EngineView.running`.

    `running`: all of them in the order in which they get tokens; if the KV runs out, the last is preempted
    first. None: as it is. `skipped`: get no token, but keep their KV. `preempted`: lose their KV and go back
    to the queue, from which this step does not take them. `chunk_caps`: most tokens of a request in this
    step, at least 1; a waiting request can be named too.
    """

    running: Sequence[RequestView] | None = None
    skipped: Collection[RequestView] = ()
    preempted: Collection[RequestView] = ()
    chunk_caps: Mapping[RequestView, int] = field(default_factory=dict)


NO_LIMITS = RunningLimits()


@dataclass(frozen=True, slots=True)
class Plan:
    """One step.

    `admitted`: waiting requests in the order in which they may start, each at most once. The engine takes
    from it only as long as it has room, so it should be lazy; where it ends, admission ends. None: the whole
    queue in its own order. `step_tokens`: most tokens of the step, from 1 to the engine's own limit.
    """

    step_tokens: int
    admitted: Iterable[RequestView] | None = None
    running_limits: RunningLimits = NO_LIMITS
