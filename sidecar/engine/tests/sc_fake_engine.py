"""A fake engine: writes the shared files with the real writers, and schedules nothing."""

import time

from headrace_engine.control.board import BoardWriter
from headrace_engine.control.boot import BootInfo, write_boot
from headrace_engine.control.paths import policy_path, stats_paths
from headrace_engine.control.policy_file import PolicyFile
from headrace_engine.control.records import FINISHED, STEPS, BoardRecord, FinishedRequest
from headrace_engine.control.ring import RingWriter

IDLE = BoardRecord(
    time=1000.0,
    step=0,
    running=0,
    waiting=0,
    waiting_prefill_tokens=0,
    unfinished_prefill_tokens=0,
    waiting_kv_blocks=0,
    free_kv_blocks=100,
    total_kv_blocks=100,
    block_size=16,
    arrivals=0,
    arrived_tokens=0,
    finishes=0,
    preemptions=0,
    fallback_steps=0,
    error_code=0,
    applied_hash=0,
    disabled=False,
    max_step_tokens=2048,
)


def finished(**changes):
    """A request that finished just now, with three targets of which it met two."""
    request = FinishedRequest(
        time=time.time() + 60,
        prompt_tokens=300,
        output_tokens=20,
        ttft=0.25,
        max_itl=0.15,
        tpot=0.04,
        itl_violations=2,
        e2e=1.2,
        queue_time=0.03,
        targets=7,
        met=5,
        preemptions=1,
    )
    return request._replace(**changes)


class FakeEngine:
    """One boot of an engine in the folder `root`."""

    def __init__(self, root, mode="Policy", reason="", started_at=1000.0):
        for folder in ("control", "stats"):
            (root / folder).mkdir(exist_ok=True)
        paths = stats_paths(root)
        self.board = BoardWriter(paths.board)
        self.steps = RingWriter(paths.steps, STEPS, 64)
        self.finished = RingWriter(paths.finished, FINISHED, 64)
        self.record = IDLE._replace(time=started_at)
        self.policy = PolicyFile(policy_path(root))
        write_boot(
            paths.boot, BootInfo(self.board.boot, 7, "0.32.0", "0.1.0", mode, reason, False, started_at)
        )

    def report(self, **changes):
        """Beat, with some fields of the board changed."""
        self.record = self.record._replace(**({"time": self.record.time + 1} | changes))
        self.board.write(self.record)

    def apply(self):
        """Do with control/policy.json what the plugin does."""
        document = self.policy.poll()
        if document is not None:
            self.report(applied_hash=int(document.hash, 16))

    def close(self):
        for file in (self.board, self.steps, self.finished):
            file.close()
