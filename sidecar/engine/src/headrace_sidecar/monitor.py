"""Looks at everything the engine left in the shared folder, and keeps what it means.

One look costs some tens of microseconds: a read of the board, and a `stat` each of the policy document, the
boot and phase files and the rings. The HTTP side answers from what the last look kept, and reads no file
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from headrace_engine.control.board import BoardReader
from headrace_engine.control.boot import read_boot
from headrace_engine.control.files import file_identity
from headrace_engine.control.paths import StatsPaths
from headrace_engine.control.phase import read_phase
from headrace_engine.control.records import FINISHED, STEPS, BoardRecord, FinishedRequest, TurnCode
from headrace_engine.control.ring import RingReader
from headrace_engine.cost.forms import Linear
from headrace_sidecar.estimates import Estimates, Rates
from headrace_sidecar.reports import NOTHING, load_report
from headrace_sidecar.state import History, Observation, classify, extend_history
from headrace_sidecar.stock import StockLoad
from headrace_sidecar.totals import Totals

ALONE_SECONDS = 30.0  # for a turn server to be replaced, which is nothing to tell anybody


@dataclass(frozen=True, slots=True)
class Lost:
    """Ring records that were overwritten before they were read."""

    steps: int
    finished: int


class Monitor:
    """Everything known of one engine; `observe` brings it up to date.

    `finished` receives each request that the engine finished, once, oldest first. What there is at the first
    observation, until which `observed` is False, was there before this process: a predecessor told of it.
    """

    def __init__(self, paths: StatsPaths, finished: Callable[[Sequence[FinishedRequest]], None]) -> None:
        self._paths = paths
        self._finished = finished
        self._board = BoardReader(paths.board)
        self._steps = RingReader(paths.steps, STEPS)
        self._requests = RingReader(paths.finished, FINISHED)
        self._booted: tuple[int, ...] = ()
        self._phased: tuple[int, ...] = ()
        self._observation = Observation()
        self._history = History()
        self._estimates = Estimates()
        self.totals = Totals()
        self.observed = False
        self._alone_since = inf  # when it was first seen without its turn server
        self.answering = False  # set by whoever asks the engine's own HTTP server, as is `stock`
        self.stock: StockLoad | None = None
        self.record = NOTHING
        self.engine = classify(self._history, self._observation, 0.0)
        self.load = load_report(self.engine, NOTHING, Rates(), serving=False)

    @property
    def lost(self) -> Lost:
        """What the rings overwrote before it was read."""
        return Lost(self._steps.lost, self._requests.lost)

    @property
    def cost(self) -> Linear | None:
        """How long this engine's steps take, by its own; None until enough prefills were seen."""
        return self._estimates.cost()

    def observe(self, now: float) -> None:
        """Read what is new; `now` is a monotonic clock in seconds."""
        self._drain()
        self._observation = self._read()
        self._history = extend_history(self._history, self._observation, now)
        self.engine = classify(self._history, self._observation, now)
        if self._observation.record is not None:
            before = self.totals.total("turn_wait_seconds")
            self.totals.add(self._observation.boot, self._observation.record, earlier=not self.observed)
            self._estimates.add_turn_wait(self.totals.total("turn_wait_seconds") - before)
        record, rates = self._numbers()
        self.record = NOTHING if self.engine.state == "Gone" else record  # it holds no requests any more
        is_alone = self.record.turn_code == TurnCode.ALONE
        self._alone_since = min(self._alone_since, now) if is_alone else inf
        self.load = load_report(self.engine, record, rates, serving=self._is_serving())
        self.observed = True

    def is_without_turns(self, now: float) -> bool:
        """Tell whether the engine, as of its last steps, has not reached its turn server for a while."""
        return now - self._alone_since >= ALONE_SECONDS

    def close(self) -> None:
        """Let go of the engine's files."""
        self._steps.close()
        self._requests.close()

    def _read(self) -> Observation:
        info = self._observation.info
        found = file_identity(self._paths.boot)
        if found != self._booted:
            self._booted, info = found, read_boot(self._paths.boot)
        phase, found = self._observation.phase, file_identity(self._paths.phase)
        if found != self._phased:
            self._phased, phase = found, read_phase(self._paths.phase)
        record = self._board.read() or self._observation.record
        return Observation(info, self._board.boot, record, self.answering, phase)

    def _drain(self) -> None:
        self._estimates.add_steps(self._steps.drain())
        requests = self._requests.drain()
        if requests:
            self._estimates.add_finished(requests)
            self._finished(requests)

    def _numbers(self) -> tuple[BoardRecord, Rates]:
        """Return the engine's present board and rates, or what stands in for them."""
        if self.engine.state == "Stock":
            return (self.stock.record, self.stock.rates) if self.stock else (NOTHING, Rates())
        record = self._observation.record
        if record is None or self.engine.state == "Starting":  # the board is that of an earlier boot
            record = NOTHING
        return record, self._estimates.rates(record.max_step_tokens)

    def _is_serving(self) -> bool:
        if self.engine.state == "Stock":
            return self.stock is not None
        return self.engine.state in ("Idle", "Running")
