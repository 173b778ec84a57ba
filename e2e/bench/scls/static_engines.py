"""Engines that batch statically, as the SCLS paper's testbed has them: Llama-2-13B on an A100 80 GB.

DeepSpeed-Inference's own kernels are taken to be as fast as vLLM 0.14's, whose times the catalogue has. Those
of Hugging Face Transformers are slower by a constant per iteration and by a copy of the KV cache in each
decode; both are what makes the paper's own example (Figure 11) come out.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from e2e.bench.runs.engine import ENGINES, cost_of
from e2e.bench.scls import estimates
from e2e.bench.scls.estimates import MostRequests, Seconds, ServingTime
from headrace_engine.cost.model import Batch, chunk_work

ENGINE = "llama-2-13b-a100"  # of `ENGINES`: its step times, and the KV that fits beside its weights
KV_TOKENS = ENGINES[ENGINE].settings.num_blocks * ENGINES[ENGINE].settings.block_size
HF_SHARE = 0.9  # zeta of equation 9
SIZES = (1, 2, 4, 8, 12, 16, 24, 32)  # of the batches that are profiled, as Figures 8 and 9
LENGTHS = (16, 64, 128, 256, 512, 768, 1024)  # tokens
TOGETHER, SEPARATE = 13.5, 7.6  # seconds of Figure 11, HF, 128 iterations
SHORT, LONG, SHORT_LENGTH, LONG_LENGTH, ITERATIONS = 15, 1, 10, 1024, 128  # requests and tokens there
STRIDE = 128  # iterations over which a decode's time is taken as straight


@dataclass(frozen=True, slots=True)
class StaticEngine:
    """An engine that pads a batch to its longest input, and serves it until all of it has ended."""

    prefill: Seconds  # of a batch, with its first tokens
    decode: Seconds  # of one iteration
    most: MostRequests
    fixed: int  # requests in a batch without an estimate
    least_interval: float  # Gamma of equation 12, seconds

    def seconds(self, requests: int, length: int, iterations: int) -> float:
        """Return what a batch takes that ends after so many iterations; the first is the prefill."""
        seconds = self.prefill(requests, length)
        done = 1
        before = self.decode(requests, length + done)
        while done < iterations:
            step = min(STRIDE, iterations - done)
            after = self.decode(requests, length + done + step)
            seconds += step * (before + after) / 2
            done, before = done + step, after
        return seconds

    def estimated(self) -> ServingTime:
        """Fit the estimate of serving times to profiled iterations."""
        return estimates.fit(self.prefill, self.decode, SIZES, LENGTHS)


def prefill(requests: int, length: int) -> float:
    """Return the catalogue's seconds of a padded batch's prefill."""
    tokens = requests * length
    return cost_of(ENGINE).step_seconds(Batch(tokens, requests * chunk_work(length, 0), prefills=requests))


def decode(requests: int, context: int) -> float:
    """Return the catalogue's seconds of one decode of a batch, each request with so many cached tokens."""
    return cost_of(ENGINE).step_seconds(Batch(decodes=requests, decode_context=requests * context))


@functools.cache
def deepspeed() -> StaticEngine:
    """Make DeepSpeed-Inference."""
    return StaticEngine(prefill, decode, estimates.deepspeed_rule, fixed=12, least_interval=3.0)


@functools.cache
def hugging_face() -> StaticEngine:
    """Make Hugging Face Transformers."""
    constant, per_cached_token = hf_delays()
    return StaticEngine(
        lambda requests, length: prefill(requests, length) + constant,
        lambda requests, context: (
            decode(requests, context) + constant + per_cached_token * requests * context
        ),
        estimates.fits_in(KV_TOKENS, HF_SHARE),
        fixed=16,
        least_interval=6.0,
    )


def hf_delays() -> tuple[float, float]:
    """Solve Figure 11 for the seconds of each iteration, and of each cached token, beyond the catalogue's."""
    fast = deepspeed()

    def cached(length: int) -> float:
        return (ITERATIONS - 1) * (length + (ITERATIONS + 1) / 2)  # over all decodes

    together, short, long = (
        fast.seconds(requests, length, ITERATIONS)
        for requests, length in ((SHORT + LONG, LONG_LENGTH), (SHORT, SHORT_LENGTH), (LONG, LONG_LENGTH))
    )
    terms = [
        [ITERATIONS, (SHORT + LONG) * cached(LONG_LENGTH)],
        [2 * ITERATIONS, SHORT * cached(SHORT_LENGTH) + LONG * cached(LONG_LENGTH)],
    ]
    constant, per_cached_token = np.linalg.solve(terms, [TOGETHER - together, SEPARATE - short - long])
    return float(constant), float(per_cached_token)
