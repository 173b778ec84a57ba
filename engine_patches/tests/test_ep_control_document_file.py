"""A document is the one that lies there now, and nothing that is none."""

import os

from headrace_engine.contracts import dumps
from headrace_engine.contracts.resume_arguments import ResumeKey
from headrace_engine.control.document_file import DocumentFile
from headrace_engine.control.files import write_whole

ONE, OTHER = (ResumeKey("llm/chat", digit * 512) for digit in "ab")


def file_at(path):
    return DocumentFile(path, ResumeKey, "requests can't be resumed")


def test_a_key_is_taken_replaced_and_taken_away(tmp_path, caplog):
    path = tmp_path / "resume-key.json"
    file = file_at(path)
    assert file.read() is None
    for key in (ONE, OTHER):
        write_whole(path, dumps(key).encode())
        assert file.read() == key
        assert file.read() == key
    path.unlink()
    assert file.read() is None
    assert not caplog.records


def test_what_is_no_key_is_told_once_and_mended_by_one(tmp_path, caplog):
    path = tmp_path / "resume-key.json"
    file = file_at(path)
    write_whole(path, b'{"service": "llm/chat"}')
    assert file.read() is None
    assert file.read() is None
    assert [record.getMessage() for record in caplog.records] == [
        "headrace: requests can't be resumed: resume-key.json: ResumeKey.modulus: missing"
    ]
    write_whole(path, dumps(ONE).encode())
    assert file.read() == ONE


def test_nothing_that_is_no_file_is_opened(tmp_path):
    path = tmp_path / "resume-key.json"
    os.mkfifo(path)
    assert file_at(path).read() is None
