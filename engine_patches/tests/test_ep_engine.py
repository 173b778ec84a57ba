"""The real vLLM engine on CPU, with the plugin delivered on PYTHONPATH and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace_engine
from e2e.bench.real_engine import outputs as engine_outputs
from e2e.cluster import model
from headrace_engine.contracts import PolicyDocument, Slice, codec
from headrace_engine.control.boot import read_boot
from headrace_engine.control.paths import stats_paths

HERE = Path(__file__).parent
PLUGIN_VERSION = "9.9.9"  # which only the delivered copy has

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),  # torch's own, as the model is made
]


def deliver(root: Path) -> Path:
    """The shared folder as the sidecar makes it, and the chaos policy as one more plugin."""
    for folder in ("plugin", "control", "stats"):
        (root / folder).mkdir(parents=True)
    plugin = root / "plugin"
    shutil.copytree(Path(headrace_engine.__file__).parent, plugin / "headrace_engine")
    shutil.copy(HERE / "ep_chaos.py", plugin)
    entry_points = {"headrace_engine": "headrace_engine.plugin:register", "ep_chaos": "ep_chaos:register"}
    for name, function in entry_points.items():
        info = plugin / f"{name}-{PLUGIN_VERSION}.dist-info"
        info.mkdir()
        about = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {PLUGIN_VERSION}\n"
        (info / "METADATA").write_text(about)
        (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {function}\n")
    return plugin


def test_policies_change_no_token(tmp_path):
    plugin = deliver(tmp_path / "headrace")
    model.write(tmp_path / "tiny")
    environment = os.environ | {
        "HEADRACE_DIR": str(tmp_path / "headrace"),
        "PYTHONPATH": str(plugin),
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    policies = ("FCFS", "CHAOS", "LARRY", "EconoServe", "AccelGen", "DoublingBudget")
    sliced = [PolicyDocument(policy, slice=Slice(32)) for policy in ("FCFS", "LARRY")]
    documents = [codec.dumps(each) for each in [*map(PolicyDocument, policies), *sliced]]
    done = subprocess.run(
        [sys.executable, engine_outputs.__file__, tmp_path / "tiny", *documents],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith(engine_outputs.MARK)]
    assert found, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(found[0].removeprefix(engine_outputs.MARK))
    fcfs, chaos, *others = report["rounds"]

    boot = read_boot(stats_paths(tmp_path / "headrace").boot)
    assert (boot.mode, boot.plugin_version) == ("Policy", PLUGIN_VERSION)
    assert others[-1]["fallback_steps"] == 0
    assert chaos["step"] - fcfs["step"] > 1.5 * fcfs["step"]
    assert chaos["preemptions"] > fcfs["preemptions"]
    assert others[-2]["preemptions"] - others[-3]["preemptions"] > fcfs["preemptions"]  # who stepped back
    for each in (chaos, *others):
        assert each["tokens"] == fcfs["tokens"]
    assert report["seeded"] == report["seeded"][:1] * len(documents)
    assert report["walk"]  # requests were served while policies changed
    assert all(tokens == fcfs["tokens"] for tokens in report["walk"])
