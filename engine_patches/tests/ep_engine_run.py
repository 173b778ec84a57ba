"""Serve the same prompts under one policy after another on one real engine; print what came out as JSON.

usage: python ep_engine_run.py MODEL POLICY…, with HEADRACE_DIR set as for any engine.
"""

import json
import sys
import time

from headrace_engine.contracts import PolicyDocument
from headrace_engine.control import paths
from headrace_engine.control.board import BoardReader
from headrace_engine.control.policy_file import write_policy


def main(model: str, policies: list[str]) -> None:
    from vllm import LLM, SamplingParams

    engine = LLM(
        model,
        max_model_len=512,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
        num_gpu_blocks_override=20,
        block_size=32,
        max_num_seqs=16,
        max_num_batched_tokens=256,
    )
    prompts = ["hello world " * (1 + 3 * (i % 5)) for i in range(24)]
    lengths = [8 + 8 * (i % 7) for i in range(24)]
    sampling = [SamplingParams(max_tokens=n, ignore_eos=True, temperature=0) for n in lengths]
    board = BoardReader(paths.stats_paths(paths.root()).board)
    report = []
    for policy in policies:
        put_in_force(PolicyDocument(policy).sealed(), board)
        outputs = engine.generate(prompts, sampling, use_tqdm=False)
        record = board.read()
        report.append(
            {
                "policy": policy,
                "tokens": [list(output.outputs[0].token_ids) for output in outputs],
                "step": record.step,
                "preemptions": record.preemptions,
                "fallback_steps": record.fallback_steps,
            }
        )
    print("REPORT " + json.dumps(report))


def put_in_force(document: PolicyDocument, board: BoardReader) -> None:
    write_policy(paths.policy_path(paths.root()), document)
    deadline = time.monotonic() + 120
    while (record := board.read()) is None or record.applied_hash != int(document.hash, 16):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{document.policy} was not applied: {record}")
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
