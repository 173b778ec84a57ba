"""The same prompts on the real engine: `python -m e2e.bench.real_engine.outputs MODEL [DOCUMENT ...]`.

They are served under each policy document in turn, and then over and over while a thread walks the engine
through all documents again; without HEADRACE_DIR and documents, once with vLLM's own scheduler. Prints what
came out as JSON, see `Report`. KV is short, so requests wait and are preempted. Nothing of `e2e` is imported:
the file runs by its path beside any plugin.
"""

import json
import sys
import threading
import time
from typing import Any, TypedDict

from headrace_engine.contracts import PolicyDocument, codec
from headrace_engine.control import paths
from headrace_engine.control.board import BoardReader
from headrace_engine.control.policy_file import write_policy
from headrace_engine.control.records import BoardRecord

MARK = "OUTPUTS "
PROMPTS = ["hello world " * (1 + 3 * (i % 5)) for i in range(24)]
LENGTHS = [8 + 8 * (i % 7) for i in range(24)]
SEEDED = 8  # prompts: more than fit into a step, of which vLLM 0.32 for CPUs dies without our plugin
TIMEOUT = 120.0  # seconds until a document must be in force

Tokens = list[list[int]]
"""Of each prompt's answer."""


class Round(TypedDict):
    """What one document came to; counters are since the engine's start."""

    tokens: Tokens
    step: int
    preemptions: int
    fallback_steps: int


class Report(TypedDict):
    """What is printed: `stock` alone without documents, else the others."""

    stock: Tokens
    rounds: list[Round]  # one for each document
    seeded: list[Tokens]  # of sampled answers to the last prompts, one for each document
    walk: list[Tokens]  # while documents changed


def main(model: str, texts: list[str]) -> None:
    """Generate the answers and print the report."""
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
    greedy = [SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0) for tokens in LENGTHS]
    seeded = [SamplingParams(max_tokens=16, ignore_eos=True, seed=seed) for seed in range(SEEDED)]

    def serve(sampling: list[Any] = greedy) -> Tokens:
        outputs: Any = engine.generate(PROMPTS[-len(sampling) :], sampling, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    documents = [codec.loads(PolicyDocument, text).sealed() for text in texts]
    report = Report(stock=[], rounds=[], seeded=[], walk=[])
    if not documents:
        report["stock"] = serve()
    for document in documents:
        put_in_force(document)
        tokens = serve()
        board = put_in_force(document)
        report["rounds"].append(
            Round(
                tokens=tokens,
                step=board.step,
                preemptions=board.preemptions,
                fallback_steps=board.fallback_steps,
            )
        )
    for document in documents:
        put_in_force(document)
        report["seeded"].append(serve(seeded))
    walker = Walker(documents)
    walker.start()
    while walker.is_alive():
        report["walk"].append(serve())
    walker.join()
    if walker.failed is not None:
        raise walker.failed
    print(MARK + json.dumps(report))


class Walker(threading.Thread):
    """Puts each document in force, one after another, however busy the engine is."""

    def __init__(self, documents: list[PolicyDocument]) -> None:
        super().__init__(daemon=True)
        self._documents = documents
        self.failed: Exception | None = None

    def run(self) -> None:
        """Walk; keeps what goes wrong."""
        try:
            for document in self._documents:
                put_in_force(document)
        except Exception as error:
            self.failed = error


def put_in_force(document: PolicyDocument) -> BoardRecord:
    """Hand the document over as the sidecar does, and wait until the engine has it; what it then shows."""
    write_policy(paths.policy_path(paths.shared_folder()), document)
    board = BoardReader(paths.stats_paths(paths.shared_folder()).board)
    deadline = time.monotonic() + TIMEOUT
    while (record := board.read()) is None or record.applied_hash != int(document.hash, 16):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{document.policy} was not applied: {record}")
        time.sleep(0.01)
    return record


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
