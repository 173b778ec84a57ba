"""The ring: each record once and in order, or counted as lost; across laps, boots and late readers."""

import multiprocessing
import os
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.control.layout import HEAD
from headrace_engine.control.records import FINISHED, STEPS, FinishedRequest, StepSample
from headrace_engine.control.ring import SLOTS_AT, RingReader, RingWriter


def sample(n):
    return StepSample(n % 2**32, n, n % 2**32, n, float(n))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rank0.steps"


def test_records_come_back_once_and_in_order(path):
    writer, reader = RingWriter(path, STEPS, 8), RingReader(path, STEPS)
    assert reader.drain() == []
    for n in range(3):
        writer.append(sample(n))
    assert reader.drain() == [sample(n) for n in range(3)]
    assert reader.drain() == []
    writer.close()


def test_a_finished_request_comes_back(path):
    request = FinishedRequest(1.5, 10, 20, 0.1, 0.3, 0.2, 4, 5.0, 0.05, 7, 5, 1)
    writer = RingWriter(path, FINISHED, 2)
    writer.append(request)
    assert RingReader(path, FINISHED).drain() == [request]
    writer.close()


@given(capacity=st.integers(1, 9), batches=st.lists(st.integers(0, 25), max_size=12))
def test_what_is_not_returned_is_counted(tmp_path_factory, capacity, batches):
    path = tmp_path_factory.mktemp("ring") / "r"
    writer, reader = RingWriter(path, STEPS, capacity), RingReader(path, STEPS)
    appended, returned = 0, reader.drain()
    for batch in batches:
        for _ in range(batch):
            writer.append(sample(appended))
            appended += 1
        got = reader.drain()
        assert got == [sample(n) for n in range(appended - min(batch, capacity), appended)]
        returned += got
    assert len(returned) + reader.lost == appended
    writer.close()
    reader.close()


def test_a_late_reader_gets_what_is_still_there(path):
    writer = RingWriter(path, STEPS, 4)
    for n in range(10):
        writer.append(sample(n))
    reader = RingReader(path, STEPS)
    assert reader.drain() == [sample(n) for n in range(6, 10)]
    assert reader.lost == 0  # they were not for it
    for n in range(10, 16):
        writer.append(sample(n))
    assert reader.drain() == [sample(n) for n in range(12, 16)]
    assert reader.lost == 2
    writer.close()


def test_a_new_boot_loses_nothing_of_the_old(path):
    reader = RingReader(path, STEPS)
    first = RingWriter(path, STEPS, 8)
    first.append(sample(1))
    assert reader.drain() == [sample(1)]
    first.append(sample(2))
    first.close()
    second = RingWriter(path, STEPS, 4)
    second.append(sample(3))
    assert reader.drain() == [sample(2), sample(3)]
    assert reader.lost == 0
    second.close()


def test_the_last_records_of_an_engine_are_read_when_its_file_is_gone(path):
    writer, reader = RingWriter(path, STEPS, 8), RingReader(path, STEPS)
    reader.drain()
    writer.append(sample(1))
    path.unlink()
    assert reader.drain() == [sample(1)]
    assert reader.drain() == []
    writer.close()


def hammer(path, rounds, created, watched):
    writer = RingWriter(path, STEPS, 64)
    created.set()
    watched.wait(30)
    for n in range(rounds):
        writer.append(sample(n))
        if n % 32 == 0:
            time.sleep(0)
    writer.close()


def test_every_record_of_a_busy_writer_is_returned_or_counted(path):
    rounds = 60_000
    context = multiprocessing.get_context("spawn")
    created, watched = context.Event(), context.Event()
    writing = context.Process(target=hammer, args=(path, rounds, created, watched))
    writing.start()
    created.wait(30)
    reader = RingReader(path, STEPS)
    returned = reader.drain()
    watched.set()
    while writing.is_alive():
        returned += reader.drain()
    writing.join()
    returned += reader.drain()
    assert writing.exitcode == 0
    assert all(record == sample(record.prefill_work) for record in returned)
    numbers = [record.prefill_work for record in returned]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == rounds - 1
    assert len(returned) + reader.lost == rounds


def ring_bytes(path, records=3, capacity=4):
    writer = RingWriter(path, STEPS, capacity)
    for n in range(records):
        writer.append(sample(n))
    writer.close()
    return bytearray(path.read_bytes())


def test_a_damaged_record_is_lost_and_the_rest_is_read(path):
    content = ring_bytes(path)
    content[SLOTS_AT + STEPS.slot.size + 10] ^= 1
    path.write_bytes(content)
    reader = RingReader(path, STEPS)
    assert reader.drain() == [sample(0), sample(2)]
    assert reader.lost == 1


def test_a_count_in_the_middle_of_a_change_is_not_believed(path):
    content = ring_bytes(path)
    struct.pack_into("<Q", content, HEAD.size, 4)
    path.write_bytes(content)
    reader = RingReader(path, STEPS)
    assert reader.drain() == []
    with path.open("r+b") as file:
        file.seek(HEAD.size)
        file.write(struct.pack("<QQ", 3, 3))
    assert reader.drain() == [sample(n) for n in range(3)]
    assert reader.lost == 0


@given(st.binary(max_size=300), st.booleans())
def test_a_foreign_file_has_no_records(tmp_path_factory, content, headed):
    path = tmp_path_factory.mktemp("ring") / "r"
    path.write_bytes((STEPS.head(4, 0) if headed else b"") + content)
    reader = RingReader(path, STEPS)
    reader.drain()
    assert reader.drain() == []
    reader.close()


@pytest.mark.parametrize("capacity", [0, 2**16 + 1, 2**63])
def test_an_impossible_capacity_is_refused(path, capacity):
    path.write_bytes(STEPS.head(capacity, 0) + struct.pack("<QQ", 1, 1))
    os.truncate(path, min(SLOTS_AT + capacity * STEPS.slot.size, 2**40))
    assert RingReader(path, STEPS).drain() == []


def test_a_ring_of_another_layout_has_no_records(path):
    ring_bytes(path)
    assert RingReader(path, FINISHED).drain() == []


def test_a_ring_cut_short_loses_records_but_not_the_reader(path):
    writer, reader = RingWriter(path, STEPS, 4), RingReader(path, STEPS)
    writer.append(sample(0))
    assert reader.drain() == [sample(0)]
    for n in (1, 2):
        writer.append(sample(n))
    writer.close()
    os.truncate(path, SLOTS_AT + 2 * STEPS.slot.size)
    assert reader.drain() == [sample(1)]
    os.truncate(path, 3)
    assert reader.drain() == []
