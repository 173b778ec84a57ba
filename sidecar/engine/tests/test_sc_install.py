"""The install command, as the init container runs it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import headrace_engine
from headrace_sidecar.install import install_plugin

SIDECAR_USER = 65532
PROBE = """
import importlib.metadata, headrace_engine
found = [d for d in importlib.metadata.distributions(name="headrace-engine")][0]
entry, = found.entry_points.select(group="vllm.general_plugins")
print(headrace_engine.__file__, found.version, entry.value)
"""


@pytest.fixture
def volume(tmp_path):
    """Like an emptyDir: a folder that anybody may write."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith("pytest-of-"):
            break
        folder.chmod(0o755)
    folder.chmod(0o755)
    path = tmp_path / "headrace"
    path.mkdir()
    path.chmod(0o777)
    return path


AS_USER = """
import email.parser, os
from headrace_sidecar.settings import read_settings
from headrace_sidecar.install import install_plugin
os.setgroups([]); os.setgid({user}); os.setuid({user})
print(install_plugin(read_settings(os.environ).root))
"""


def run_install(root, user=None):
    """The command; with `user`, what it does as that user, who may not be able to read our interpreter."""
    command = (
        ["-m", "headrace_sidecar.engine", "install"] if user is None else ["-c", AS_USER.format(user=user)]
    )
    return subprocess.run(
        [sys.executable, *command],
        env={"HEADRACE_DIR": str(root), "PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def snapshot(root):
    return {
        path.relative_to(root): (path.stat().st_mode, path.is_file() and path.read_bytes())
        for path in root.rglob("*")
    }


def test_an_interpreter_with_the_folder_on_its_path_finds_the_plugin(volume):
    done = run_install(volume)
    assert done.returncode == 0, done.stderr
    found = subprocess.run(
        [sys.executable, "-S", "-c", PROBE],
        env={"PYTHONPATH": str(volume / "plugin")},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert found[0] == str(volume / "plugin" / "headrace_engine" / "__init__.py")
    assert found[1:] == ["0.1.0", "headrace_engine.plugin:register"]
    assert f"headrace-engine {found[1]} is ready" in done.stdout


def test_every_module_arrives_and_nothing_else(volume):
    run_install(volume)
    source = Path(headrace_engine.__file__).parent
    copied = {
        path.relative_to(volume / "plugin" / "headrace_engine")
        for path in volume.rglob("headrace_engine/**/*.py")
    }
    assert copied == {path.relative_to(source) for path in source.rglob("*.py")}
    assert not list(volume.rglob("__pycache__"))
    assert sorted(path.name for path in volume.iterdir()) == ["control", "plugin", "stats"]


@pytest.mark.skipif(os.getuid() != 0, reason="changes user")
def test_it_needs_no_privilege_and_leaves_the_right_modes(volume):
    done = run_install(volume, user=SIDECAR_USER)
    assert done.returncode == 0, done.stderr
    modes = {name: stat.S_IMODE((volume / name).stat().st_mode) for name in ("plugin", "control", "stats")}
    assert modes == {"plugin": 0o755, "control": 0o755, "stats": 0o1777}
    assert {path.stat().st_uid for path in volume.rglob("*")} == {SIDECAR_USER}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (volume / "plugin").rglob("*.py")} == {0o644}


def test_a_second_run_changes_nothing(volume):
    run_install(volume)
    before, inode = snapshot(volume), (volume / "plugin").stat().st_ino
    (volume / "control" / "policy.json").write_text("{}")
    assert run_install(volume).returncode == 0
    after = snapshot(volume)
    assert (volume / "control" / "policy.json").read_text() == "{}"
    assert before.items() <= after.items()
    assert (volume / "plugin").stat().st_ino == inode


@pytest.mark.parametrize("damage", ["change", "remove", "add"])
def test_an_older_or_damaged_plugin_is_replaced(volume, damage):
    install_plugin(volume)
    before = snapshot(volume)
    module = volume / "plugin" / "headrace_engine" / "__init__.py"
    if damage == "change":
        module.write_text("broken")
    elif damage == "remove":
        module.unlink()
    else:
        (module.parent / "left_over.py").write_text("")
    (volume / ".plugin.killed").mkdir()
    install_plugin(volume)
    assert snapshot(volume) == before


@pytest.mark.parametrize("problem", ["absent", "file"])
def test_a_folder_that_cannot_be_used_is_named(tmp_path, problem):
    root = tmp_path / "headrace"
    if problem == "file":
        root.write_text("")
    done = run_install(root)
    assert done.returncode == 1
    assert f"HEADRACE_DIR={root}: cannot write it" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "status", "message"),
    [
        ([], {}, 2, "usage: "),
        (["start"], {}, 2, "usage: "),
        (
            ["serve"],
            {"HEADRACE_PORT": "http"},
            1,
            "HEADRACE_PORT: expected a port from 1 to 65535, got 'http'",
        ),
        (["serve"], {"HEADRACE_PORT": "70000"}, 1, "HEADRACE_PORT"),
    ],
)
def test_a_wrong_call_says_what_is_right(arguments, variables, status, message):
    done = subprocess.run(
        [sys.executable, "-m", "headrace_sidecar.engine", *arguments],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
