"""What of vLLM's configuration matters to its scheduler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The names are vLLM's, but for `prefix_caching`, its `enable_prefix_caching`."""

    num_blocks: int = 1024  # KV blocks, of which vLLM keeps one for itself
    block_size: int = 16  # tokens per KV block
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    async_scheduling: bool = False  # the next step is planned while one runs
    max_model_len: int = 8192  # longest prompt and output together
    watermark: float = 0.0  # share of the KV blocks that waiting requests must leave free
    prefix_caching: bool = False

    @property
    def depth(self) -> int:
        """Steps in flight at most."""
        return 2 if self.async_scheduling else 1

    def refusal(self, prompt_tokens: int, output_tokens: int) -> str | None:
        """Explain why such a request can never be served; None if it can."""
        tokens = prompt_tokens + output_tokens
        if prompt_tokens < 1 or output_tokens < 1:
            return f"{prompt_tokens} prompt and {output_tokens} output tokens; each must be at least 1"
        if tokens > self.max_model_len:
            return f"{tokens} tokens are more than max_model_len, {self.max_model_len}"
        room = (self.num_blocks - 1) * self.block_size
        if tokens > room:
            return f"{tokens} tokens are more than the KV cache holds, {room}"
        return None
