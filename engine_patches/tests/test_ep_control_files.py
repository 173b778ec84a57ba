"""Policy and boot files: whole or not at all, new content once; and the bytes that layouts promise."""

import json
import threading
from pathlib import Path

import pytest

from headrace_engine.contracts import ContractError, PolicyDocument, decode, encode
from headrace_engine.control.boot import BootInfo, read_boot, write_boot
from headrace_engine.control.files import write_whole
from headrace_engine.control.layout import Layout, SlotWriter
from headrace_engine.control.paths import policy_path, shared_folder, stats_paths
from headrace_engine.control.policy_file import PolicyFile, write_policy
from headrace_engine.control.records import BOARD, FINISHED, STEPS, BoardRecord, FinishedRequest, StepSample

GOLDEN = json.loads((Path(__file__).parent / "golden" / "stats_records.json").read_text())
RECORDS = {
    "board": (
        BOARD,
        BoardRecord(
            *(1.5, *range(1, 17), True, 8192, *range(17, 23), *(n / 4 for n in range(6)), 1, 40, 0.375)
        ),
    ),
    "steps": (STEPS, StepSample(512, 262_144, 7, 3_500, 0.0125)),
    "finished": (
        FINISHED,
        FinishedRequest(1.5, 300, 20, 0.25, 0.125, 0.0625, 1, 2.5, 0.5, 7, 5, 2, 4, 1, 24.5),
    ),
}


def slot_bytes(layout: Layout, record) -> bytes:
    slot = bytearray(layout.slot.size)
    SlotWriter(layout).write(memoryview(slot), 3, record)
    return bytes(slot)


@pytest.mark.parametrize("name", RECORDS)
def test_the_layouts_are_what_their_versions_promise(name):
    layout, record = RECORDS[name]
    assert layout.head(4, 0xABC).hex() == GOLDEN[name]["head"]
    assert slot_bytes(layout, record).hex() == GOLDEN[name]["slot"]
    assert layout.unpack(bytes.fromhex(GOLDEN[name]["slot"])) == (3, record)


def test_a_policy_is_told_once_and_again_when_it_changes(tmp_path):
    path = tmp_path / "policy.json"
    watch = PolicyFile(path)
    assert watch.poll() is None
    for policy in ("FCFS", "LARRY"):
        document = PolicyDocument(policy=policy).sealed()
        write_policy(path, document)
        assert watch.poll() == document
        assert watch.poll() is None
    path.unlink()
    assert watch.poll() is None


def test_a_bad_policy_is_said_once_and_the_next_good_one_is_told(tmp_path):
    path = tmp_path / "policy.json"
    watch = PolicyFile(path)
    path.write_text('{"policy": 1}')
    with pytest.raises(ContractError, match=r"PolicyDocument\.policy: expected str"):
        watch.poll()
    assert watch.poll() is None
    document = PolicyDocument(policy="FCFS").sealed()
    write_policy(path, document)
    assert watch.poll() == document


def test_an_unreadable_policy_is_said(tmp_path):
    path = tmp_path / "policy.json"
    path.mkdir()
    with pytest.raises(ContractError, match=r"policy\.json: cannot be read: Is a directory"):
        PolicyFile(path).poll()


def test_a_swapped_link_is_new_content(tmp_path):
    """As the kubelet updates a ConfigMap volume."""
    path = tmp_path / "policy.json"
    path.symlink_to("..data/policy.json")
    watch = PolicyFile(path)
    for n, policy in enumerate(("FCFS", "LARRY")):
        folder = tmp_path / f"..{n}"
        folder.mkdir()
        write_policy(folder / "policy.json", PolicyDocument(policy=policy).sealed())
        (tmp_path / "..new").symlink_to(folder.name)
        (tmp_path / "..new").rename(tmp_path / "..data")
        found = watch.poll()
        assert found is not None
        assert found.policy == policy


def test_a_reader_sees_the_old_file_or_the_new(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([n]) * 50_000 for n in range(2)]
    write_whole(path, contents[0])
    done = threading.Event()

    def rewrite():
        for n in range(300):
            write_whole(path, contents[n % 2])
        done.set()

    thread = threading.Thread(target=rewrite)
    thread.start()
    while not done.is_set():
        assert path.read_bytes() in contents
    thread.join()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_old_file_alone(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "file", b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_boot_info_comes_back(tmp_path):
    info = BootInfo(
        "00c0ffee00c0ffee", 7, "0.32.0", "0.1.0", "Stock", "vLLM 0.33 is not supported", True, 12.5
    )
    write_boot(tmp_path / "rank0.json", info)
    assert read_boot(tmp_path / "rank0.json") == info
    assert set(encode(info)) == {
        *("boot", "pid", "vllmVersion", "pluginVersion", "mode", "reason", "asyncScheduling", "startedAt"),
        "maxModelLen",
    }
    assert decode(BootInfo, encode(info)) == info


@pytest.mark.parametrize("content", [None, "", "{", '{"boot": 3}', '{"mode": "Other"}'])
def test_boot_info_that_cannot_be_understood_is_none(tmp_path, content):
    path = tmp_path / "rank0.json"
    if content is not None:
        path.write_text(content)
    assert read_boot(path) is None


def test_where_the_files_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_DIR", str(tmp_path))
    assert shared_folder() == tmp_path
    assert policy_path(shared_folder()) == tmp_path / "control" / "policy.json"
    assert [
        path.name for path in (stats_paths(shared_folder(), 1).board, stats_paths(shared_folder(), 1).boot)
    ] == [
        "rank1.board",
        "rank1.json",
    ]
