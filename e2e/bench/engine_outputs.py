"""The same prompts on the real engine, on CPU: `python -m e2e.bench.engine_outputs MODEL [DOCUMENT ...]`.

They are served under each policy document in turn, or once if none is given: without HEADRACE_DIR that is
vLLM's own scheduler. Prints what came out as JSON, a list of token lists for each document. KV is short, so
requests wait and are preempted.
"""

import json
import sys
import time
from typing import Any

from headrace_engine.contracts import PolicyDocument, codec
from headrace_engine.control import paths
from headrace_engine.control.board import BoardReader
from headrace_engine.control.policy_file import write_policy

MARK = "OUTPUTS "
PROMPTS = ["hello world " * (1 + 3 * (i % 5)) for i in range(24)]
LENGTHS = [8 + 8 * (i % 7) for i in range(24)]
PATIENCE = 120.0  # seconds until a document must be in force


def main(model: str, documents: list[str]) -> None:
    """Print the tokens."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415  it takes ten seconds to import

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
    sampling = [SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0) for tokens in LENGTHS]

    def serve() -> list[list[int]]:
        outputs: Any = engine.generate(PROMPTS, sampling, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    found = []
    for text in documents:
        put_in_force(codec.loads(PolicyDocument, text).sealed())
        found.append(serve())
    print(MARK + json.dumps(found or [serve()]))


def put_in_force(document: PolicyDocument) -> None:
    """Hand the document over as the sidecar does, and wait until the engine has it."""
    write_policy(paths.policy_path(paths.root()), document)
    board = BoardReader(paths.stats_paths(paths.root()).board)
    deadline = time.monotonic() + PATIENCE
    while (record := board.read()) is None or record.applied_hash != int(document.hash, 16):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{document.policy} was not applied: {record}")
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
