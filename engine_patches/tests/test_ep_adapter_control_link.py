"""The engine's end of the shared folder: what is staged, what is refused, and what an idle engine beats."""

import time

import pytest
from ep_engine_view import LIMITS

from headrace_engine.adapter.control_link import FileLink
from headrace_engine.contracts import PolicyDocument
from headrace_engine.control.board import BoardReader
from headrace_engine.control.paths import policy_path, stats_paths
from headrace_engine.control.policy_file import write_policy
from headrace_engine.control.records import BoardRecord, ErrorCode

LARRY = PolicyDocument("LARRY", {"alpha": 3}).sealed()
FCFS = PolicyDocument("FCFS").sealed()
IDLE = BoardRecord(
    time=0.0, step=5, running=0, waiting=0, waiting_prefill_tokens=0, unfinished_prefill_tokens=0,
    waiting_kv_blocks=0, free_kv_blocks=9, total_kv_blocks=9, block_size=16, arrivals=1, arrived_tokens=7,
    finishes=1, preemptions=0, fallback_steps=2, error_code=ErrorCode.RAISED, applied_hash=0, disabled=True,
    max_step_tokens=512,
)  # fmt: skip
BUSY = IDLE._replace(running=1)


@pytest.fixture
def root(tmp_path):
    for folder in ("control", "stats"):
        (tmp_path / folder).mkdir()
    return tmp_path


@pytest.fixture
def link(root):
    link = FileLink(root, rank=0)
    yield link
    link.close()


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.005)
    return found


def test_a_document_that_is_there_at_start_is_staged(root, link):
    write_policy(policy_path(root), LARRY)
    link.start(LIMITS)
    assert link.staged.document == LARRY
    assert link.staged.make() is not link.staged.make()


def test_a_document_with_parameters_that_do_nothing_is_staged_by_its_own_hash(root, link):
    """As an operator of another release writes it, for whom they are parameters."""
    document = PolicyDocument("EconoServe", {"variant": "Full", "reservedPercent": 5}).sealed()
    write_policy(policy_path(root), document)
    link.start(LIMITS)
    assert link.staged.document == document
    assert link.staged.make().order is not None


def test_an_idle_engine_counts_a_staged_document_as_applied(root, link):
    board = BoardReader(stats_paths(root).board)
    link.start(LIMITS)
    link.publish_board(IDLE._replace(gauge_2=7.0, step_tokens=99))
    write_policy(policy_path(root), LARRY)
    record = until(lambda: (r := board.read()) and r.applied_hash and r)
    assert record.applied_hash == int(LARRY.hash, 16)
    assert (record.gauge_2, record.step_tokens) == (0.0, 0)  # they told of the policy before
    assert (record.disabled, record.error_code) == (False, ErrorCode.NONE)


def test_a_busy_engine_applies_at_its_next_step(root, link):
    board = BoardReader(stats_paths(root).board)
    link.start(LIMITS)
    link.publish_board(BUSY)
    write_policy(policy_path(root), LARRY)
    until(lambda: link.staged)
    record = until(lambda: (r := board.read()) and r.time > 0 and r)
    assert record.applied_hash == 0


def test_the_beat_goes_on_but_never_the_step(root, link):
    board = BoardReader(stats_paths(root).board)
    link.start(LIMITS)
    link.publish_board(BUSY)
    first = until(lambda: (r := board.read()) and r.time > 0 and r)
    second = until(lambda: (r := board.read()) and r.time > first.time and r)
    assert second._replace(time=0.0) == BUSY


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", ErrorCode.DOCUMENT),
        ('{"policy": 7}', ErrorCode.DOCUMENT),
        ('{"policy": "SJF", "hash": "00"}', ErrorCode.PARAMETERS),
        ('{"policy": "LARRY", "parameters": {"alpha": -1}, "hash": "00"}', ErrorCode.PARAMETERS),
        ('{"policy": "LARRY", "hash": "not hexadecimal"}', ErrorCode.PARAMETERS),
    ],
)
def test_a_refused_document_leaves_the_one_before(root, link, text, code):
    board = BoardReader(stats_paths(root).board)
    write_policy(policy_path(root), FCFS)
    link.start(LIMITS)
    link.publish_board(IDLE._replace(error_code=ErrorCode.NONE))
    policy_path(root).write_text(text)
    until(lambda: (r := board.read()) and r.error_code == code)
    assert link.staged.document == FCFS
    write_policy(policy_path(root), LARRY)
    until(lambda: (r := board.read()) and r.error_code == ErrorCode.NONE and r.applied_hash)
    assert link.staged.document == LARRY


def test_a_muted_link_beats_no_more_but_still_stages(root, link):
    board = BoardReader(stats_paths(root).board)
    link.start(LIMITS)
    link.publish_board(BUSY)
    until(lambda: board.read().time > 0)
    link.mute()
    last = board.read()
    write_policy(policy_path(root), LARRY)
    until(lambda: link.staged)
    write_policy(policy_path(root), FCFS)  # a document is staged only after the beat for the one before
    until(lambda: link.staged.document == FCFS)
    assert board.read() == last


def test_closing_ends_the_thread(link):
    link.start(LIMITS)
    link.close()
    assert not link._thread.is_alive()


def test_every_rank_has_its_own_files(root, link):
    other = FileLink(root, rank=1)
    other.publish_board(IDLE)
    assert BoardReader(stats_paths(root, 1).board).read() == IDLE
    assert BoardReader(stats_paths(root, 0).board).read() is None
    assert other.boot != link.boot
