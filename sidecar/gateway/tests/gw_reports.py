"""A load report that tests vary."""

from headrace_engine.contracts import LoadReport

IDLE = LoadReport(
    boot="boot-1",
    time=0.0,
    serving=True,
    running=0,
    waiting=0,
    waiting_prefill_tokens=0,
    unfinished_prefill_tokens=0,
    waiting_kv_blocks=0,
    free_kv_blocks=10_000,
    total_kv_blocks=10_000,
    block_size=16,
    arrivals=0,
    arrived_tokens=0,
    finishes=0,
    prefill_tokens_per_second=10_000.0,
    step_seconds=0.02,
    mean_prompt_tokens=500.0,
    mean_output_tokens=100.0,
)
