"""The static configuration: the chart's copy is up to date, and the real Envoy accepts it."""

import re
import subprocess
from pathlib import Path

import pytest
import yarl
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


@pytest.mark.envoy
@pytest.mark.timeout(240)
async def test_of_envoys_admin_only_metrics_are_reachable(rig, session):
    await rig.apply(session, {})
    ready = f"http://127.0.0.1:{rig.ready_port}"
    async with session.get(
        ready + "/stats/prometheus?filter=^http.gateway.downstream_cx_active$"
    ) as response:
        assert response.status == 200
        assert (
            'envoy_http_downstream_cx_active{envoy_http_conn_manager_prefix="gateway"}'
            in await response.text()
        )
    tries = [("POST", "/stats/prometheus")]
    tries += [
        ("GET", path)
        for path in (
            *("/", "/stats", "/stats/prometheus/", "/stats/prometheus/../config_dump", "/clusters"),
            *("//stats/prometheus", "/stats%2fprometheus", "/quitquitquit", "/config_dump?resource=x"),
        )
    ]
    for method, path in tries:
        url = yarl.URL(ready + path, encoded=True)
        async with session.request(method, url) as response:
            assert response.status == 404, (method, path)
