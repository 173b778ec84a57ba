"""How a container ended: when, how, with which last words, how often; and for how long that is told. Pure.

Engine and sidecar are to run as long as their pod: whatever code one ends with, it has crashed. vLLM itself
ends with code 0 when its engine process has died.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from headrace_operator import names
from headrace_operator.api.bodies import Body

# Seconds for which a crash is told of an engine that serves again: as long as the kubelet counts it.
CRASH_REPORT_SECONDS = 600.0
_WORDS_LIMIT = 600


@dataclass(frozen=True, slots=True)
class Crash:
    """How a container ended last; as text, the sentence that tells it."""

    container: str
    times: int  # that it has ended in this pod
    at: str = ""  # RFC 3339; empty: not known
    code: int | None = None
    reason: str = ""  # the runtime's word, such as OOMKilled
    said: str = ""  # its last line

    def __str__(self) -> str:
        when = f" at {self.at}" if self.at else ""
        how = "" if self.code is None else f" with code {self.code}"
        why = f" ({self.reason})" if self.reason else ""
        often = "once" if self.times <= 1 else f"{self.times} times"
        words = f"; last words: {self.said}" if self.said else ""
        killed = self.reason == "OOMKilled" and self.container == names.ENGINE
        fix = "; give it more memory: spec.podTemplate.resources" if killed else ""
        return f"container {self.container} ended{when}{how}{why}, {often} so far{words}{fix}"


def read_crash(container: Body) -> Crash | None:
    """Read a crash from a container's status; None if it has not crashed."""
    state = container.get("state", {})
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
    if not ended or not (ended.get("exitCode") or container["name"] in {names.ENGINE, names.SIDECAR}):
        return None
    restarts = container.get("restartCount", 0)
    return Crash(
        container["name"],
        times=restarts if state.get("running") is not None else restarts + 1,
        at=ended.get("finishedAt") or "",
        code=ended.get("exitCode"),
        reason=ended.get("reason") or "",
        said=_last_line(ended.get("message") or ""),
    )


def crash_reported_until(crash: Crash, ready_since: str) -> float:
    """Return the Unix time until which a pod that is ready again has crashed lately; 0: not known."""
    times = [_seconds(time) for time in (crash.at, ready_since) if time]
    return max(times) + CRASH_REPORT_SECONDS if crash.at and times else 0.0


def _seconds(time: str) -> float:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _last_line(message: str) -> str:
    """Return what a traceback says was raised."""
    said = message.strip().rpartition("\n")[2]
    return said if len(said) <= _WORDS_LIMIT else said[:_WORDS_LIMIT] + "…"
