"""`headrace simulate` as a user runs it, with vLLM's scheduler."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from op_world import body

from headrace_engine.policies import registry

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]  # three processes import vLLM on however few cores


def test_a_policy_is_recommended_where_long_prompts_hold_up_short_ones(tmp_path):
    service = tmp_path / "service.yaml"
    service.write_text(
        yaml.safe_dump(
            body(
                model={"source": "hf://meta-llama/Llama-3.1-8B-Instruct"},
                engine={"image": "i", "maxModelLen": 16384},
                accelerator={"type": "GPU"},
                scheduling={"policy": "FCFS"},
                slo={"ttft": "1s"},
                replicas=1,
            )
        )
    )
    # Every 10 s, 16 long prompts (3 s of work), then 24 short ones.
    burst = [(number, 8000) for number in range(16)] + [(number, 100) for number in range(16, 40)]
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        "".join(
            json.dumps(
                {"arrival_time": 10 * start + number / 1000, "prompt_tokens": prompt, "output_tokens": 2}
            )
            + "\n"
            for start in range(5)
            for number, prompt in burst
        )
    )
    files = ["--service", str(service), "--trace", str(trace)]
    options = ["--gpu", "h100", "--replicas-up-to", "2", "--output", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "headrace_operator.simulate", "simulate", *files, *options],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "policies" in done.stderr
    found = json.loads(done.stdout)
    by_name = {each["name"]: each for each in found["policies"]}
    stock = by_name["FCFS, 8192"]
    assert stock["current"]
    assert stock["requests"] == 160
    assert {each["scheduling"]["policy"] for each in found["policies"]} == set(registry.policy_names())
    assert {each["scheduling"]["stepBudget"]["mode"] for each in found["policies"]} == {
        "Engine",
        "Fixed",
        "SLO",
    }
    assert found["recommended"]["patch"]["spec"]["scheduling"]["policy"] != "FCFS"
    assert by_name["LARRY, 8192"]["met"]["all"] > stock["met"]["all"] + 0.2
    best = by_name[found["recommended"]["name"]]
    assert best["met"]["all"] > stock["met"]["all"] + 0.2
    assert best["ttft"]["mean"] < stock["ttft"]["mean"]
    assert found["recommended"]["replicas"] in {None, 2}
