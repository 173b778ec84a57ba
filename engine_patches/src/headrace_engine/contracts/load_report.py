"""What an engine holds at one moment: the picker's view of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Sidecar → picker, as one JSON object (`/load`) or one line per change (`/load/stream`).

    `arrivals` and `arrived_tokens` are cumulative since the engine's `boot`: the difference between two
    reports tells the picker which of the requests it sent had landed when the report was taken.
    """

    boot: str  # changes when the engine restarts, and with it all cumulative counts start again
    time: float  # unix seconds when the engine wrote the numbers
    serving: bool  # the engine makes progress, or is idle and healthy
    running: int  # requests in the batch
    waiting: int  # requests in the queue
    waiting_prefill_tokens: int  # prompt tokens of the waiting requests
    unfinished_prefill_tokens: int  # prompt tokens of running requests that are not computed yet
    waiting_kv_blocks: int  # KV blocks that the waiting requests' prompts will need
    free_kv_blocks: int
    total_kv_blocks: int
    block_size: int  # tokens per KV block, of one request's blocks in all groups of layers
    arrivals: int  # requests that reached the scheduler
    arrived_tokens: int  # their prompt tokens
    finishes: int  # requests that left it
    prefill_tokens_per_second: float  # measured rate when prefilling, in its share of the GPU; 0: unknown
    step_seconds: float  # mean duration of a step, recent, with waits for turns; 0 while unknown
    mean_prompt_tokens: float  # of recently finished requests; 0 while unknown
    mean_output_tokens: float  # likewise
    max_model_len: int = 0  # tokens of prompt and output together; 0: not known
    schema: int = 1
