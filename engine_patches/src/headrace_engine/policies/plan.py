"""What a policy decides for one step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace_engine.policies.view import RequestView


@dataclass(frozen=True, slots=True)
class Yielding:
    """What running requests give up in this step. Every request named is in `EngineView.running`.

    `running`: all of them in the order in which they get tokens; if the KV runs out, the last is preempted
    first. None: as it is. `hidden`: skipped, but keep their KV. `preempted`: lose their KV and go back to the
    queue, from which this step does not take them. `chunk_caps`: most tokens of a request in this step, at
    least 1; a waiting request can be named too.
    """

    running: Sequence[RequestView] | None = None
    hidden: Collection[RequestView] = ()
    preempted: Collection[RequestView] = ()
    chunk_caps: Mapping[RequestView, int] = field(default_factory=dict)


NOTHING = Yielding()


@dataclass(frozen=True, slots=True)
class Plan:
    """One step.

    `admitted`: waiting requests in the order in which they may start, each at most once. The engine takes
    from it only as long as it has room, so it should be lazy; where it ends, admission ends. None: the whole
    queue in its own order. `step_tokens`: most tokens of the step, from 1 to the engine's own limit.
    """

    step_tokens: int
    admitted: Iterable[RequestView] | None = None
    yielding: Yielding = NOTHING
