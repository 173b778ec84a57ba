"""The demo's stages: told, timed, never silent, and named where they fail."""

import os
import threading

import pytest

from e2e.demo import steps as steps_module
from e2e.demo.steps import StageError, Steps


def test_a_stage_is_told_and_timed(capsys):
    steps = Steps()
    with steps.stage("cluster"):
        steps.say("  working")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["▸", "working", "done"]
    assert steps.seconds["cluster"] >= 0


def test_a_failed_stage_is_named_and_timed():
    steps = Steps()
    with pytest.raises(StageError, match="step “chart” failed: no such chart"), steps.stage("chart"):
        raise OSError("no such chart")
    assert "chart" in steps.seconds


def test_a_command_that_fails_shows_its_last_lines(capsys):
    steps = Steps()
    with pytest.raises(StageError, match=r"ended with 3\nalmost"), steps.stage("cluster"):
        steps.command(["sh", "-c", "echo almost; exit 3"], os.environ)
    assert "  almost" in capsys.readouterr().out


def test_silence_is_broken(monkeypatch):
    monkeypatch.setattr(steps_module, "QUIET", 0.0)
    spoken, said = threading.Event(), []

    class Listening(Steps):
        def say(self, text=""):
            said.append(text)
            if text.startswith("  …"):
                spoken.set()

    with Listening().stage("engines start"):
        assert spoken.wait(timeout=10)
    assert said[1].startswith("  … engines start")
