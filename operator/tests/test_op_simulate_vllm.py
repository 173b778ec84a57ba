"""`headrace simulate` as a user runs it, with vLLM's scheduler."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from op_simulate_pool import raw, write_trace
from op_world import body

from headrace_engine.policies import registry

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]  # three processes import vLLM on however few cores


def run(*options):
    """Run the command to its end; gives its JSON, and what it says meanwhile."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "headrace_operator.simulate", "simulate"),
            *options,
            *("--gpu", "h100", "--output", "json"),
        ],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


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
    found, progress = run(*files, "--replicas-up-to", "2")
    assert "policies" in progress
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


def test_services_that_are_seldom_asked_at_the_same_time_need_one_gpu(tmp_path):
    (tmp_path / "pool.yaml").write_text("---\n".join(yaml.safe_dump(raw(name)) for name in ("chat", "code")))
    chat = write_trace(tmp_path, "chat", range(0, 120, 2), output=40)
    code = write_trace(tmp_path, "code", [0.2 + each for each in range(0, 120, 2)], output=40)
    found, progress = run(
        *("--pool", str(tmp_path / "pool.yaml"), "--trace", f"chat={chat}", "--trace", f"code={code}")
    )
    assert "plans" in progress
    assert found["gpus"] == {"today": 2, "own_gpus": 2, "shared": 1}
    today, shared = found["plans"]["today"]["services"], found["plans"]["fewest_shared"]["services"]
    [group] = found["plans"]["fewest_shared"]["groups"]
    assert sum(each["gpu_memory_utilization_percent"] for each in group["engines"]) <= 100
    for name in ("chat", "code"):
        assert (today[name]["requests"], shared[name]["requests"]) == (48, 48)
        assert shared[name]["met"]["all"] == 1.0
        assert 1.2 < shared[name]["e2e"]["mean"] / today[name]["e2e"]["mean"] < 2
