# ruff: noqa: INP001  vLLM finds it by its entry point, on the engine's path
"""Keeps vLLM's CPU engine alive when a request with a `seed` has a prompt that takes several steps.

A step that computes a part of a prompt samples a token as well, and throws it away. vLLM then sets the
request's random numbers back by an offset, which only CUDA's generators have: on a CPU it raises, and the
engine ends (vLLM 0.32, model runner V1). Here they are set back to what they were before the step, so a seed
gives the same answer however the prompt is cut. A plugin of vLLM's, for the local cluster's image only.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def register() -> None:
    """Mend the CPU runner; vLLM calls this in each of its processes."""
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner  # noqa: PLC0415  vLLM must set itself up first

    CPUModelRunner._sample = keeping_unused(CPUModelRunner._sample)  # noqa: SLF001
    CPUModelRunner._bookkeeping_sync = without_offsets(CPUModelRunner._bookkeeping_sync)  # noqa: SLF001


def keeping_unused(sample: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the sampler, so that requests whose tokens are thrown away get back their random numbers."""

    def run(runner: Any, *arguments: Any, **named: Any) -> Any:
        batch = runner.input_batch
        unused = np.nonzero(runner.discard_request_mask.np[: batch.num_reqs])[0]
        kept = [batch.generators[int(row)] for row in unused if int(row) in batch.generators]
        states = [generator.get_state() for generator in kept]
        sampled = sample(runner, *arguments, **named)
        for generator, state in zip(kept, states, strict=True):
            generator.set_state(state)
        return sampled

    return run


def without_offsets(bookkeeping: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what follows sampling, which then finds no generators to set back."""

    def run(runner: Any, *arguments: Any, **named: Any) -> Any:
        batch = runner.input_batch
        generators, batch.generators = batch.generators, {}
        try:
            return bookkeeping(runner, *arguments, **named)
        finally:
            batch.generators = generators

    return run
