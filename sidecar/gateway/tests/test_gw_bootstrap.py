"""The static configuration: the chart's copies are up to date, and the real Envoy accepts them."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yarl
from gw_rig import ENVOY

from headrace_gateway.xds import chart_files, filters
from headrace_gateway.xds.credentials import api_keys_document

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", chart_files.chart_files())
def test_the_charts_copy_is_up_to_date(name):
    assert (ROOT / chart_files.CHART_FOLDER / name).read_text() == chart_files.chart_files()[name], (
        "run: python -m headrace_gateway.xds.chart_files"
    )


def test_tls_and_api_keys_are_left_out_as_a_whole():
    text = chart_files.chart_files()["envoy.yaml"]
    parts = re.split(r"^{{- (?:if .*|end) }}\n", text, flags=re.MULTILINE)
    outside, inside = "".join(parts[::2]), parts[1::2]
    assert sorted(re.findall(r"^{{- if (.*) }}$", text, re.MULTILINE)) == sorted(
        chart_files.CHART_OPTIONAL.values()
    )
    assert not re.search("api-keys|ApiKeyAuth|transport_sockets.tls", outside)
    assert [bool(re.search("api-keys|tls", part)) for part in inside] == [True, True]
    assert not any(re.search("json_to_metadata|ready_listener|clusters:", part) for part in inside)


def test_envoy_sends_the_picker_the_headers_that_balancers_need():
    assert "allowed_headers" not in filters.picker_filter(1, [])["typed_config"]
    config = filters.picker_filter(1, ["x-session"])["typed_config"]
    assert config["allowed_headers"] == {"patterns": [{"exact": "x-session"}]}


@pytest.mark.envoy
@pytest.mark.parametrize("secured", [False, True])
def test_envoy_accepts_the_charts_copy(tmp_path, secured):
    filled = {
        "fullname": "picker.example",
        "Namespace": "",
        "maxBodyBytes": "4194304",
        "memoryLimit": str(1 << 30),
    }
    text = chart_files.chart_files()["envoy.yaml"]
    text = text.replace(chart_files.CHART.drain_file, str(tmp_path / "draining"))
    if secured:
        keys, certificate = tmp_path / "api-keys.json", tmp_path / "certificate.yaml"
        keys.write_text(json.dumps(api_keys_document([("key", "client")])))
        certificate.write_text(chart_files.chart_files()["certificate.yaml"])
        text = text.replace(chart_files.CHART.api_keys, str(keys)).replace("/run/headrace", str(tmp_path))
        text = re.sub("{{- .*}}\n", "", text.replace(chart_files.CHART.certificate, str(certificate)))
    else:
        text = re.sub(r"{{- if .*?{{- end }}\n", "", text, flags=re.DOTALL)
    text = re.sub(
        r"{{.*?(fullname|Namespace|maxBodyBytes|memoryLimit).*?}}", lambda match: filled[match[1]], text
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
