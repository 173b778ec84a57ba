"""Results and the pages that show them go together."""

import json

from e2e.bench.report import results


def test_a_kept_result_renews_the_pages_and_another_does_not(tmp_path, monkeypatch):
    renewed, generate = tmp_path / "renewed", tmp_path / "generate.py"
    generate.write_text(f"import pathlib; pathlib.Path({str(renewed)!r}).touch()")
    monkeypatch.setattr(results, "_PAGES", generate)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "kept")
    results.write("study", "command", {"a": 1, "b": None}, folder=tmp_path / "quick")
    assert not renewed.exists()
    path = results.write("study", "command", {"a": 1, "b": None}, folder=tmp_path / "kept")
    assert renewed.exists()
    assert json.loads(path.read_text())["figures"] == {"a": 1}
