"""A plugin of vLLM's that writes down an engine's steps and what it says of turns, for the benchmark alone.

To `TURNS_LOG`, as JSON, when the engine leaves its group or ends: `steps`, each with when it was scheduled
and when its tokens came back; `said` and `heard`, each with time, kind, epoch and priority; `kept`, the
nanoseconds of each time that a turn was kept. Times are the machine's monotonic clock in nanoseconds.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

VARIABLE = "TURNS_LOG"


def register() -> None:
    """Write down what this process's engine does; vLLM calls this in each of its processes."""
    from headrace_engine.adapter.turn_taking import TurnTaking  # noqa: PLC0415  vLLM must set itself up first
    from headrace_engine.turns.member import Member  # noqa: PLC0415

    now = time.monotonic_ns
    path = Path(os.environ[VARIABLE])
    steps: list[list[int]] = []
    said: list[tuple[int, int, int, float]] = []
    heard: list[tuple[int, int, int, float]] = []
    kept: list[int] = []
    in_flight: dict[int, list[int]] = {}
    turn_taking, member = vars(TurnTaking).copy(), vars(Member).copy()

    def note_scheduled(self: Any, output: Any) -> None:
        turn_taking["note_scheduled"](self, output)
        if output.total_num_scheduled_tokens:
            step = in_flight[id(output)] = [now(), 0]
            steps.append(step)

    def note_computed(self: Any, output: Any) -> None:
        step = in_flight.pop(id(output), None)
        if step is not None:
            step[1] = now()
        turn_taking["note_computed"](self, output)

    def may_schedule(self: Any) -> Any:
        held, messages = self._member.holds, len(said) + len(heard)
        began = time.perf_counter_ns()
        answer = turn_taking["may_schedule"](self)
        if held and answer and messages == len(said) + len(heard):
            kept.append(time.perf_counter_ns() - began)
        return answer

    def close(self: Any) -> None:
        path.write_text(json.dumps({"steps": steps, "said": said, "heard": heard, "kept": kept}))
        turn_taking["close"](self)

    def send(self: Any, message: Any) -> None:
        said.append((now(), int(message.kind), message.epoch, message.priority))
        member["_send"](self, message)

    def take_in(self: Any, message: Any) -> None:
        heard.append((now(), int(message.kind), message.epoch, message.priority))
        member["_take_in"](self, message)

    for each in (note_scheduled, note_computed, may_schedule, close):
        setattr(TurnTaking, each.__name__, each)
    Member._send, Member._take_in = send, take_in  # type: ignore[method-assign]  # noqa: SLF001
