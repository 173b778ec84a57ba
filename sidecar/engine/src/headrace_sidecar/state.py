"""What state an engine is in, from what its files say and for how long they have said it.

Everything here is pure. `now` is our own monotonic clock: the engine's clock only tells records apart, so a
jump of the wall clock changes no state. `extend_history` folds each observation into the history, `classify`
names the state.

The engine's board beats once a second even when there is nothing to schedule; a board that stands still means
that the process is gone, and a beating board whose step stands still while requests wait means that it hangs.
A plugin that never came up can't say so: an engine that answers HTTP for a while without a beat is stock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from headrace_engine.contracts import EngineInfo
from headrace_engine.control.boot import BootInfo
from headrace_engine.control.phase import PhaseInfo
from headrace_engine.control.records import BoardRecord

State = Literal["Starting", "Idle", "Running", "Hung", "Stock", "Gone"]
STATES: tuple[State, ...] = get_args(State)

GONE_AFTER = 10.0  # seconds without a beat; several beats may be late under a long garbage collection
HUNG_AFTER = 30.0  # seconds without a step; far beyond any step, a long prefill on a CPU included
SILENT_AFTER = 5.0  # seconds of answering HTTP without a beat

NO_PHASE = PhaseInfo()

SILENT = (
    "the engine serves, but the Headrace plugin has not reported: vLLM's own scheduler runs; "
    "check that the image passes PYTHONPATH on, that VLLM_PLUGINS is unset, and the engine's log"
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What was found of the engine at one time, in its files and by asking its HTTP server."""

    info: BootInfo | None = None
    boot: str = ""  # that wrote `record`
    record: BoardRecord | None = None
    answering: bool = False  # vLLM's HTTP server says that it is healthy
    phase: PhaseInfo = NO_PHASE


@dataclass(frozen=True, slots=True)
class History:
    """When what we see last changed, in seconds of our clock."""

    beat: tuple[str, float] = ("", 0.0)  # boot and time on the board
    beat_at: float = 0.0
    step: tuple[str, int] = ("", 0)  # boot and step on the board
    step_at: float = 0.0  # the step changed, or there was nothing to do
    answering_since: float | None = None


def is_busy(record: BoardRecord) -> bool:
    """Tell whether the engine has anything to do."""
    return record.running + record.waiting > 0


def extend_history(history: History, observation: Observation, now: float) -> History:
    """Return `history` with this observation taken into account."""
    record = observation.record
    beat = (observation.boot, record.time) if record else history.beat
    step = (observation.boot, record.step) if record else history.step
    moved = step != history.step or record is None or not is_busy(record)
    since = history.answering_since
    return History(
        beat=beat,
        beat_at=now if beat != history.beat else history.beat_at,
        step=step,
        step_at=now if moved else history.step_at,
        answering_since=(now if since is None else since) if observation.answering else None,
    )


def classify(history: History, observation: Observation, now: float) -> EngineInfo:
    """Name the engine's state, given a history that includes this observation."""
    life = _life(observation)
    state, reason = _state(history, observation, life, now)
    beating = state in ("Idle", "Running", "Hung")
    phase = NO_PHASE if beating else observation.phase  # of a start, which is over then
    known = life or BootInfo(observation.boot, 0, "", "", "Policy")
    return EngineInfo(
        state, reason, known.vllm_version, known.boot, known.max_model_len, phase.phase, phase.since
    )


def _life(observation: Observation) -> BootInfo | None:
    """Return the boot report of the engine's present life; None if the board is from a later one."""
    info, record = observation.info, observation.record
    if info is None or record is None or info.boot == observation.boot or record.time < info.started_at:
        return info
    return None


def _state(
    history: History, observation: Observation, life: BootInfo | None, now: float
) -> tuple[State, str]:
    if life is not None and life.mode == "Stock":
        return "Stock", life.reason
    record = observation.record if life is None or life.boot == observation.boot else None
    beating = record is not None and now - history.beat_at <= GONE_AFTER
    if record is not None and beating:
        return _beating_state(history, record, now)
    if history.answering_since is not None and now - history.answering_since >= SILENT_AFTER:
        return "Stock", SILENT
    if record is None:
        return "Starting", "the engine's scheduler has not reported yet"
    return "Gone", f"no sign of life for {now - history.beat_at:.0f} s"


def _beating_state(history: History, record: BoardRecord, now: float) -> tuple[State, str]:
    if not is_busy(record):
        return "Idle", ""
    still = now - history.step_at
    if still <= HUNG_AFTER:
        return "Running", ""
    return (
        "Hung",
        f"{record.running} requests running, {record.waiting} waiting, but no step for {still:.0f} s",
    )
