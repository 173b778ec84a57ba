"""The engine's end of the files shared with its sidecar, and the thread that watches them.

An idle EngineCore blocks on its request queue and takes no step, so a thread of ours polls the policy file
and beats: it repeats the last board record with a new time. A document that was staged while nothing runs is
reported as applied at once, because the next step, whenever it comes, swaps before it plans. The thread never
raises the step count: a reader that sees requests running and the step frozen knows that the engine hangs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from headrace_engine.adapter.stopwatch import Stopwatch
from headrace_engine.adapter.vllm_types import VllmRequest
from headrace_engine.contracts import ContractError, PolicyDocument, Prediction
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.control.board import BoardWriter
from headrace_engine.control.document_file import DocumentFile
from headrace_engine.control.paths import policy_path, stats_paths, turn_group_path
from headrace_engine.control.policy_file import PolicyFile
from headrace_engine.control.records import (
    FINISHED,
    STEPS,
    BoardRecord,
    ErrorCode,
    FinishedRequest,
    StepSample,
)
from headrace_engine.control.ring import RingWriter
from headrace_engine.cost.model import CostModel
from headrace_engine.policies import registry
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.prediction import Predictor, build_predictor
from headrace_engine.turns.connection import JoinGroup, join_group

_NO_GAUGES: dict[str, Any] = {name: 0.0 for name in BoardRecord._fields if name.startswith("gauge_")}

POLL_SECONDS = 0.1
BEAT_SECONDS = 1.0
STEPS_KEPT = 4096
FINISHED_KEPT = 8192

log = logging.getLogger("vllm.headrace")


@dataclass(frozen=True, slots=True)
class Staged:
    """A document that can be put in force, and how to make its policy."""

    document: PolicyDocument
    make: Callable[[], Policy]


class ControlLink(Protocol):
    """What the adapter needs of the world outside vLLM. No method may block."""

    staged: Staged | None  # the newest good document
    known_cost: CostModel | None  # of a simulated engine; None: the engine learns it
    listens: bool  # otherwise the engine tells nothing
    turn_group: TurnGroup | None  # with whom the engine shares its GPU

    @property
    def clock(self) -> Callable[[], float]:
        """The present time in unix seconds."""

    @property
    def stopwatch(self) -> Callable[[], float]:
        """CPU seconds of the calling thread."""

    @property
    def join_group(self) -> JoinGroup:
        """How the engine becomes a member of its turn group."""

    def make_predictor(self, prediction: Prediction) -> Predictor:
        """Make a new predictor of output lengths."""

    def most_output(self, request: VllmRequest) -> int:
        """Return the most output tokens that vLLM's `request` may produce."""

    def start(self, limits: EngineLimits) -> None:
        """Start to watch for documents, once the scheduler is set up."""

    def publish_board(self, record: BoardRecord) -> None:
        """Replace the record on the board."""

    def publish_step(self, sample: StepSample) -> None:
        """Publish the sample of a step."""

    def publish_finished(self, record: FinishedRequest) -> None:
        """Publish the record of a finished request."""

    def mute(self) -> None:
        """Tell nothing more, not even that the engine lives; documents are staged as before."""

    def close(self) -> None:
        """Stop watching for documents."""


class FileLink:
    """The link through the folder `root` for one engine rank. Raises OSError if it can't be written to."""

    def __init__(self, root: Path, rank: int) -> None:
        paths = stats_paths(root, rank)
        self.clock = time.time
        self.stopwatch = Stopwatch()
        self.staged: Staged | None = None
        self.known_cost: CostModel | None = None
        self.listens = True
        self.join_group: JoinGroup = join_group
        self._policy_file = PolicyFile(policy_path(root))
        self._turn_group_file = DocumentFile(turn_group_path(root), TurnGroup, "no turns are taken")
        self.turn_group = self._turn_group_file.read()
        self._refused = ErrorCode.NONE  # why the newest document is not staged
        self._board = BoardWriter(paths.board)
        self._steps = RingWriter(paths.steps, STEPS, STEPS_KEPT)
        self._finished = RingWriter(paths.finished, FINISHED, FINISHED_KEPT)
        self._last: BoardRecord | None = None
        self._lock = threading.Lock()  # over `_last` and the board: a beat must not undo a step's record
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.publish_step = self._steps.append
        self.publish_finished = self._finished.append

    def make_predictor(self, prediction: Prediction) -> Predictor:
        """Build the predictor that the policy document names."""
        return build_predictor(prediction)

    def most_output(self, request: VllmRequest) -> int:
        """Return as many as the client asked for, or up to the end of the model's context."""
        most: int = request.max_tokens
        return most

    @property
    def boot(self) -> str:
        """This life of the engine, as it stands on the board."""
        return self._board.boot

    def start(self, limits: EngineLimits) -> None:
        """Stage the document that is there, then watch for others."""
        self._stage(limits)
        self._thread = threading.Thread(target=self._watch, args=(limits,), name="headrace", daemon=True)
        self._thread.start()

    def publish_board(self, record: BoardRecord) -> None:
        """Replace the record on the board."""
        if self._refused:
            record = record._replace(error_code=self._refused)
        with self._lock:
            self._last = record
            self._board.write(record)

    def mute(self) -> None:
        """Let the board grow old, so that nobody takes its last record for the engine's present state."""
        with self._lock:
            self._last = None

    def close(self) -> None:
        """Stop the thread; the files stay, with a board that grows old."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, limits: EngineLimits) -> None:
        next_beat = time.monotonic()
        while not self._stop.wait(POLL_SECONDS):
            try:
                self.turn_group = self._turn_group_file.read()
                if self._stage(limits) or time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + BEAT_SECONDS
                    self._beat()
            except Exception:
                log.exception("headrace: watching the documents failed; trying again")

    def _stage(self, limits: EngineLimits) -> bool:
        """Look for a new document; whether anything changed."""
        try:
            document = self._policy_file.poll()
        except ContractError as error:
            self._refuse(ErrorCode.DOCUMENT, error)
            return True
        if document is None:
            return False
        try:
            registry.build_policy(document, limits)
            int(document.hash, 16)
        except (ContractError, ValueError) as error:
            self._refuse(ErrorCode.PARAMETERS, error)
            return True
        self._refused = ErrorCode.NONE
        self.staged = Staged(document, partial(registry.build_policy, document, limits))
        log.info("headrace: policy %s (%s) staged", document.policy, document.hash)
        return True

    def _refuse(self, code: ErrorCode, error: Exception) -> None:
        self._refused = code
        log.error("headrace: policy document refused, the one before stays in force: %s", error)

    def _beat(self) -> None:
        with self._lock:
            if self._last is None:
                return
            record = self._last._replace(time=self.clock())
            if self._refused:
                record = record._replace(error_code=self._refused)
            if self.staged is not None and not (record.running or record.waiting):
                applied = int(self.staged.document.hash, 16)
                if applied != record.applied_hash:
                    error = self._refused or ErrorCode.NONE
                    record = record._replace(
                        applied_hash=applied,
                        disabled=False,
                        error_code=error,
                        step_tokens=0,
                        skipped=0,
                        **_NO_GAUGES,
                    )
            self._board.write(record)
