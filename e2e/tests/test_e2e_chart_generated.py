"""Files made by `make generate` are what their sources say."""

import subprocess
import sys

import pytest

from e2e.cluster import places


@pytest.mark.parametrize("script", ["charts/generate.py", "docs/generate.py"])
def test_generated_files_are_current(script):
    done = subprocess.run(
        [sys.executable, places.REPOSITORY / script, "--check"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
