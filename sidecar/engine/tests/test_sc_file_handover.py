"""The engine's copies of documents are what the service's ConfigMap has."""

import pytest

from headrace_sidecar.file_handover import FileHandover


@pytest.fixture
def source(tmp_path):
    return tmp_path / "config" / "resume-key.json"


@pytest.fixture
def target(tmp_path):
    return tmp_path / "control" / "resume-key.json"


@pytest.fixture
def handover(source, target):
    target.parent.mkdir()
    (source.parent / "..first").mkdir(parents=True)
    (source.parent / "..second").mkdir()
    return FileHandover(source, target)


def mount(source, version, text):
    """As the kubelet mounts a ConfigMap: a link to the file of a version."""
    (source.parent / version / source.name).write_text(text)
    source.unlink(missing_ok=True)
    source.symlink_to(source.parent / version / source.name)


def test_a_document_is_handed_over_replaced_and_taken_back(handover, source, target):
    handover.hand_over_new()
    assert not target.exists()
    for version, text in (("..first", "one"), ("..second", "another")):
        mount(source, version, text)
        handover.hand_over_new()
        assert target.read_text() == text
    source.unlink()
    handover.hand_over_new()
    assert not target.exists()


def test_what_did_not_change_is_not_touched(handover, source, target):
    mount(source, "..first", "one")
    handover.hand_over_new()
    before = target.stat()
    handover.hand_over_new()
    assert target.stat() == before


def test_a_document_that_went_while_no_sidecar_looked_is_taken_back(handover, target):
    target.write_text("of an earlier life")
    handover.hand_over_new()
    assert not target.exists()


def test_what_cannot_be_written_is_said_once_and_tried_again(handover, source, target, caplog):
    mount(source, "..first", "one")
    target.parent.rename(target.parent.with_name("gone"))
    for _ in range(3):
        handover.hand_over_new()
    [said] = caplog.records
    assert said.getMessage() == f"cannot keep {target} up to date: No such file or directory"
    target.parent.mkdir()
    handover.hand_over_new()
    assert target.read_text() == "one"
