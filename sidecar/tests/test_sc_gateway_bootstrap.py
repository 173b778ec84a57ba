"""The static configuration: the chart's copy is up to date, and the real Envoy accepts it."""

import re
import subprocess
from pathlib import Path

import pytest
from sc_gateway_rig import ENVOY

from headrace_sidecar.gateway.bootstrap import CHART_FILE, chart_file

ROOT = Path(__file__).parents[2]


def test_the_charts_copy_is_up_to_date():
    assert (ROOT / CHART_FILE).read_text() == chart_file(), (
        "run: python -m headrace_sidecar.gateway.bootstrap"
    )


@pytest.mark.envoy
def test_envoy_accepts_the_charts_copy(tmp_path):
    filled = {"fullname": "picker.example", "Namespace": "", "maxBodyBytes": "4194304"}
    text = re.sub(
        r"{{.*?(fullname|Namespace|maxBodyBytes).*?}}", lambda match: filled[match[1]], chart_file()
    )
    assert "{{" not in text
    path = tmp_path / "envoy.yaml"
    path.write_text(text)
    command = [
        str(ENVOY),
        "--mode",
        "validate",
        "-c",
        str(path),
        "--service-node",
        "n",
        "--service-cluster",
        "c",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[warning]" not in done.stderr, done.stderr
