"""The hurried operator: what it shortens is there, which else only tests on a real API server would see."""

import os
import subprocess
import sys
from pathlib import Path


def test_every_wait_that_is_shortened_is_one_of_the_operators():
    command = [sys.executable, "-c", "import op_hurried"]
    environment = os.environ | {"HEADRACE_HURRY": "10"}
    done = subprocess.run(
        command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
