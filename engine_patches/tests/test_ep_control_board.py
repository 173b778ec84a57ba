"""The board: what a reader sees is one whole record of a real boot, or nothing, whatever is in the file."""

import multiprocessing
import os
import struct
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.control.board import BoardReader, BoardWriter
from headrace_engine.control.layout import HEAD, SlotWriter
from headrace_engine.control.records import BOARD, BoardRecord

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
records = st.builds(
    BoardRecord,
    time=st.floats(allow_nan=False),
    step=u64,
    running=u32,
    waiting=u32,
    waiting_prefill_tokens=u64,
    unfinished_prefill_tokens=u64,
    waiting_kv_blocks=u64,
    free_kv_blocks=u32,
    total_kv_blocks=u32,
    block_size=u32,
    arrivals=u64,
    arrived_tokens=u64,
    finishes=u64,
    preemptions=u64,
    fallback_steps=u64,
    error_code=u32,
    applied_hash=u64,
    disabled=st.booleans(),
    max_step_tokens=u32,
    predictor=u32,
    prediction_failures=u64,
    predictions_learned=u64,
    ignored_overrides=u64,
    step_tokens=u32,
    skipped=u32,
    **{f"gauge_{place}": st.floats(0, 1e12) for place in range(1, 7)},
    turn_code=u32,
    turns=u64,
    turn_wait_seconds=st.floats(0, 1e12),
)


def uniform(n):
    """A record in which every number is `n`, so that a mixture of two shows."""
    return BoardRecord(float(n), *([n] * 16), bool(n % 2), *([n] * 7), *([float(n)] * 6), n, n, float(n))


def is_uniform(record):
    return record == uniform(record.step)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rank0.board"


@given(records)
def test_any_record_comes_back(tmp_path_factory, record):
    path = tmp_path_factory.mktemp("board") / "b"
    writer = BoardWriter(path)
    writer.write(record)
    reader = BoardReader(path)
    assert reader.read() == record
    assert reader.boot == writer.boot
    writer.close()


def test_nothing_is_read_before_the_first_record(path):
    reader = BoardReader(path)
    assert reader.read() is None
    writer = BoardWriter(path)
    assert reader.read() is None
    assert reader.boot == ""
    writer.close()


def test_a_closed_board_keeps_its_last_record(path):
    writer = BoardWriter(path)
    writer.write(uniform(7))
    writer.close()
    assert BoardReader(path).read() == uniform(7)


def test_a_new_boot_is_a_new_file_and_the_reader_follows(path):
    reader = BoardReader(path)
    first = BoardWriter(path)
    first.write(uniform(1))
    inode = path.stat().st_ino
    assert reader.read() == uniform(1)

    second = BoardWriter(path)
    assert path.stat().st_ino != inode
    assert reader.read() is None
    second.write(uniform(2))
    first.write(uniform(3))
    assert reader.read() == uniform(2)
    assert reader.boot == second.boot != first.boot
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    first.close()
    second.close()


def hammer(path, stop):
    writer = BoardWriter(path)
    n = 0
    while not stop.is_set():
        for _ in range(1000):
            n = (n + 1) % 2**32
            writer.write(uniform(n))
    writer.close()


@pytest.mark.parametrize("how", ["thread", "process"])
def test_a_reader_never_sees_two_records_mixed(path, how):
    context = multiprocessing.get_context("spawn") if how == "process" else threading
    stop = context.Event()
    writing = getattr(context, how.capitalize())(target=hammer, args=(path, stop))
    writing.start()
    reader = BoardReader(path)
    seen = []
    deadline = time.monotonic() + 20
    while len(seen) < 3000 and time.monotonic() < deadline:
        record = reader.read()
        if record is not None:
            assert is_uniform(record)
            seen.append(record.step)
    stop.set()
    writing.join()
    assert len(seen) == 3000
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]


def test_two_threads_may_write(path):
    writer = BoardWriter(path)
    threads = [
        threading.Thread(target=lambda: [writer.write(uniform(n)) for n in range(500)]) for _ in range(2)
    ]
    reader = BoardReader(path)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        record = reader.read()
        assert record is None or is_uniform(record)
    assert reader.read() == uniform(499)
    writer.close()


def whole(n=5):
    """The bytes of a board with one record."""
    slot = bytearray(BOARD.slot.size)
    SlotWriter(BOARD).write(memoryview(slot), 1, uniform(n))
    return BOARD.head(1, 0xABC) + bytes(slot)


def test_the_bytes_of_a_board_are_read(path):
    path.write_bytes(whole())
    reader = BoardReader(path)
    assert reader.read() == uniform(5)
    assert reader.boot == "0000000000000abc"


@given(st.data())
def test_any_changed_byte_of_the_record_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("board") / "b"
    content = bytearray(whole())
    position = data.draw(st.integers(HEAD.size, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    assert BoardReader(path).read() is None


@given(st.integers(0, len(whole()) - 1))
def test_a_file_cut_short_is_no_board(tmp_path_factory, size):
    path = tmp_path_factory.mktemp("board") / "b"
    path.write_bytes(whole()[:size])
    assert BoardReader(path).read() is None


@given(st.binary(max_size=400))
def test_a_foreign_file_is_no_board(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("board") / "b"
    path.write_bytes(content)
    assert BoardReader(path).read() is None


def test_a_board_of_another_version_is_no_board(path):
    content = bytearray(whole())
    struct.pack_into("<I", content, 8, BOARD.version + 1)
    path.write_bytes(content)
    assert BoardReader(path).read() is None


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "secret"])
def test_what_is_no_regular_file_is_no_board(path, tmp_path, kind):
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        (tmp_path / "target").write_bytes(whole())
        path.symlink_to(tmp_path / "target")
    else:
        path.symlink_to("/dev/zero")
    assert BoardReader(path).read() is None


def test_a_file_truncated_under_the_reader_is_no_board(path):
    path.write_bytes(whole())
    reader = BoardReader(path)
    assert reader.read() == uniform(5)
    os.truncate(path, HEAD.size + 3)
    assert reader.read() is None


def test_a_writer_that_died_in_a_write_leaves_no_record(path):
    content = bytearray(whole())
    content[HEAD.size : HEAD.size + 8] = struct.pack("<Q", 2)
    path.write_bytes(content)
    assert BoardReader(path).read() is None


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(FileNotFoundError):
        BoardWriter(tmp_path / "absent" / "rank0.board")
