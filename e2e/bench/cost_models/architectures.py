"""Shapes of models, from their published configurations, and what they need of memory."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_DIM = 128  # of all of them
BYTES = 2  # bf16


@dataclass(frozen=True, slots=True)
class Architecture:
    """A dense decoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    gated: bool = True  # the MLP has a gate beside its up projection
    tied: bool = False  # the head is the embedding

    @property
    def ups(self) -> int:
        """Return how many matrices of the MLP widen: up, and the gate."""
        return 2 if self.gated else 1

    @property
    def kv_bytes_per_token(self) -> int:
        """Return the bytes of keys and values of one token, over all GPUs."""
        return 2 * self.layers * self.kv_heads * HEAD_DIM * BYTES

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of all matrices, embedding and head among them."""
        heads = (2 * self.heads + 2 * self.kv_heads) * HEAD_DIM
        layer = self.hidden * (heads + (self.ups + 1) * self.ffn)
        tables = 1 if self.tied else 2
        return BYTES * (self.layers * layer + tables * self.vocabulary * self.hidden)


ARCHITECTURES = {
    "llama-2-7b": Architecture(32, 4096, 32, 32, 11008, 32000),
    "llama-2-13b": Architecture(40, 5120, 40, 40, 13824, 32000),
    "llama-2-70b": Architecture(80, 8192, 64, 8, 28672, 32000),
    "llama-3-8b": Architecture(32, 4096, 32, 8, 14336, 128256),
    "llama-3-70b": Architecture(80, 8192, 64, 8, 28672, 128256),
    "qwen2.5-7b": Architecture(28, 3584, 28, 4, 18944, 152064),
    "qwen3-14b": Architecture(40, 5120, 40, 8, 17408, 151936),
    "qwen3-32b": Architecture(64, 5120, 64, 8, 25600, 151936),
    "mistral-nemo-12b": Architecture(40, 5120, 32, 8, 14336, 131072),
    "codellama-34b": Architecture(48, 8192, 64, 8, 22016, 32000),
    "yi-34b": Architecture(60, 7168, 56, 8, 20480, 64000),
    "opt-13b": Architecture(40, 5120, 40, 40, 20480, 50272, gated=False, tied=True),
}
