"""When this engine may compute, if it shares its GPU with others: between vLLM's scheduler and `turns`.

An engine that others wait for schedules no further step, lets those end that are in flight, and gives its
turn away then; nothing that vLLM has to be told is lost meanwhile, since steps without tokens go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headrace_engine.adapter.vllm_types import SchedulerOutput, VllmScheduler
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.control.records import TurnCode
from headrace_engine.turns.connection import JoinGroup
from headrace_engine.turns.orders import ORDERS

WAIT_SECONDS = 0.005  # for a turn at a time: requests that come and aborts are read in between


@dataclass(slots=True)
class TurnCounts:
    """What an engine tells of its turns: since its boot, in whatever groups it was."""

    code: TurnCode = TurnCode.NONE
    turns: int = 0
    wait_seconds: float = 0.0  # with requests to compute


class TurnTaking:
    """One engine's part in `group`, which it joins by `join`. It adds to `counts`.

    `clock`: seconds, that of the scheduler's steps.
    """

    def __init__(
        self,
        scheduler: VllmScheduler,
        group: TurnGroup,
        join: JoinGroup,
        clock: Callable[[], float],
        counts: TurnCounts,
    ) -> None:
        self.group = group
        self._scheduler = scheduler
        self._clock = clock
        self._counts = counts
        self._waits_since: float | None = None  # for the turn
        self._order = ORDERS[group.order](scheduler.get_request_counts)
        self._member = join(group, self._order.value)
        self._in_flight: deque[float] = deque()  # when each step was scheduled
        self._computed = 0.0  # until when the last one was

    def may_schedule(self) -> bool:
        """Tell whether a step may be scheduled now; waits a little for the turn if not."""
        if self._member.holds and self._member.may_step():
            return True
        if not self._has_work():
            self._waits_since = None
            return True  # a step without tokens
        if self._in_flight:
            return self._member.alone and self._member.may_step()
        began = self._clock() if self._waits_since is None else self._waits_since
        may = self._wait_for_turn()
        self._waits_since = None if may else began
        self._counts.code = TurnCode.ALONE if self._member.alone else TurnCode.IN_TURNS
        if may:
            self._counts.wait_seconds += max(self._clock() - began, 0.0)
            self._counts.turns += self._member.holds
        return may

    def _wait_for_turn(self) -> bool:
        member = self._member
        if not member.holds and member.may_step(WAIT_SECONDS):
            return True
        if member.holds:
            member.release(again=True)
            return member.may_step(WAIT_SECONDS)
        return False

    def note_scheduled(self, output: SchedulerOutput) -> None:
        """Take in what was scheduled: a step in flight, if it has tokens."""
        for new in output.scheduled_new_reqs:
            self._order.start(new.req_id)
        for name in output.scheduled_cached_reqs.resumed_req_ids:
            self._order.start(name)
        for name in output.preempted_req_ids or ():
            self._order.preempt(name)
        if output.total_num_scheduled_tokens:
            self._in_flight.append(self._clock())
        elif not self._in_flight:
            self._member.rest()  # whatever waits can't run now: others can

    def note_computed(self, output: SchedulerOutput) -> None:
        """Take in that a step has been computed; gives the turn away at once if it was the last in flight."""
        if not output.total_num_scheduled_tokens or not self._in_flight:
            return
        now = self._clock()
        self._order.compute(max(now - max(self._in_flight.popleft(), self._computed), 0.0), now)
        self._computed = now
        if not self._in_flight and self._member.is_asked():
            self._member.release(again=True)

    def note_ended(self, name: str, unloaded: float | None, *, whole: bool) -> None:
        """Take in that a request ended; `whole` if it ran to its end.

        `unloaded`: seconds that it would have taken alone, if known.
        """
        self._order.finish(name, unloaded, whole=whole)

    def rest_if_idle(self) -> None:
        """Give the turn away if there is nothing to compute: an idle engine looks at no socket."""
        if not self._in_flight and not self._has_work():
            self._member.rest()

    def close(self) -> None:
        """Leave the group."""
        self._member.close()
        self._counts.code = TurnCode.NONE

    def _has_work(self) -> bool:
        return sum(self._scheduler.get_request_counts()) > 0
