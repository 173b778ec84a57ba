"""Real engines of a tiny model that go on with what others began: all with the same weights and key."""

from pathlib import Path

from e2e.bench.continuation import features
from e2e.bench.continuation.signer import Signer
from e2e.bench.gateway.testbed import HOST
from e2e.bench.real_engine import vllm_server
from headrace_engine.contracts import PolicyDocument, dumps
from headrace_engine.control.files import write_whole
from headrace_engine.control.paths import resume_key_path

LONGEST = 1024  # tokens of a prompt and its answer
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
}
_OPTIONS = (
    "--load-format=auto",
    "--dtype=float32",
    "--enforce-eager",
    f"--max-model-len={LONGEST}",
    "--block-size=32",
    "--num-gpu-blocks-override=200",
    "--max-num-seqs=16",
    "--max-num-batched-tokens=64",  # so that prompts, and what was delivered, take several steps
    "--gpu-memory-utilization=0.2",
    *features.ARGUMENTS,
)


def start_engine(
    folder: Path,
    model: Path,
    service: str,
    signer: Signer,
    *,
    address: str = HOST,
    port: int | None = None,
) -> vllm_server.Server:
    """Start an engine of `service` that obeys `signer`; `model` was written by `features.write_model`."""
    made = vllm_server.start(
        folder,
        model,
        features.MODEL,
        _OPTIONS,
        _ENVIRONMENT,
        policy=PolicyDocument("FCFS"),
        address=address,
        port=port,
    )
    write_whole(resume_key_path(made.shared), dumps(signer.key(service)).encode())
    return made
