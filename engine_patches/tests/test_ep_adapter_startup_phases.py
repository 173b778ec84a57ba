"""How far an engine's start is, from log lines as vLLM writes them and a client that downloads."""

import logging
import time

import pytest

from headrace_engine.adapter import startup_phases
from headrace_engine.control.phase import PhaseInfo, read_phase, write_phase


@pytest.fixture
def listener(tmp_path):
    return startup_phases._PhaseHandler(tmp_path / "rank0.phase")


def told(tmp_path):
    return read_phase(tmp_path / "rank0.phase").phase


def say(listener, text, *details):
    listener.handle(logging.LogRecord("vllm.x", logging.INFO, "x.py", 1, text, details, None))


def test_phases_follow_the_log(listener, tmp_path):
    assert told(tmp_path) == ""
    for text, phase in (
        ("Initializing a V1 LLM engine (v%s)", ""),
        ("Starting to load model %s...", "Loading"),
        ("Loading weights took %.2f seconds", "Loading"),
        ("Model loading took %s GiB memory and %.6f seconds", "Compiling"),
        ("Application startup complete.", "Compiling"),
    ):
        say(listener, text)
        assert told(tmp_path) == phase
    assert time.time() - 60 < read_phase(tmp_path / "rank0.phase").since <= time.time()


class Hub:
    """A client of the hub; `seen`: the phase while it downloads."""

    def __init__(self, path):
        self.path, self.seen = path, []

    def snapshot_download(self, name, *, local_files_only=False, fail=False):
        self.seen.append(read_phase(self.path).phase)
        if fail:
            raise OSError("no such repository")
        return name


def test_a_download_is_told_while_it_lasts(tmp_path):
    path = tmp_path / "rank0.phase"
    client = type("Client", (Hub,), {})
    startup_phases._watch_downloads(client, path)
    hub = client(path)
    assert hub.snapshot_download("a/b", local_files_only=True) == "a/b"
    assert hub.snapshot_download("a/b") == "a/b"
    assert hub.seen == ["", "Downloading"]
    assert told(tmp_path) == "Loading"
    with pytest.raises(OSError, match="no such repository"):
        hub.snapshot_download("a/b", fail=True)
    assert told(tmp_path) == "Loading"


def test_a_rank_that_waits_for_the_download_of_another_is_not_told_to_load(listener, tmp_path):
    path = tmp_path / "rank0.phase"
    write_phase(path, PhaseInfo("Downloading", time.time() + 1))
    say(listener, "Starting to load model %s...")
    assert told(tmp_path) == "Downloading"
    write_phase(path, PhaseInfo("Downloading", time.time() - 1000))  # of an earlier life
    say(listener, "Starting to load model %s...")
    assert told(tmp_path) == "Loading"


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path):
    say(startup_phases._PhaseHandler(tmp_path / "gone" / "rank0.phase"), "Starting to load model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", '{"phase": 3}', '{"since": "x"}', "x" * 5000])
def test_a_phase_that_cannot_be_understood_is_none(tmp_path, content):
    (tmp_path / "rank0.phase").write_text(content)
    assert read_phase(tmp_path / "rank0.phase") == PhaseInfo()


def test_what_goes_wrong_stays_in_the_listener(listener, monkeypatch, tmp_path):
    def fail(*_):
        raise ValueError("unforeseen")

    monkeypatch.setattr(startup_phases, "read_phase", fail)
    say(listener, "Starting to load model %s...")
    monkeypatch.setattr(startup_phases, "write_phase", fail)
    client = type("Client", (Hub,), {})
    startup_phases._watch_downloads(client, tmp_path / "rank0.phase")
    assert client(tmp_path / "rank0.phase").snapshot_download("a model") == "a model"
