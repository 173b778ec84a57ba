"""The closed forms that step times are fitted with. Coefficients are seconds per unit.

P prefill tokens, W = sum of chunk * (context + chunk/2), D decodes, S sum of decode contexts, T = P + D.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace_engine.cost.model import Batch, Profile


@dataclass(frozen=True, slots=True)
class Linear:
    """fixed + per_prefill P + per_work W + per_decode D + per_context S: what a live fit finds."""

    profile: Profile
    fixed: float
    per_prefill: float
    per_work: float = 0.0
    per_decode: float = 0.0
    per_context: float = 0.0

    def step_seconds(self, batch: Batch) -> float:
        """Return how many seconds one step takes."""
        return (
            self.fixed
            + self.per_prefill * batch.prefill_tokens
            + self.per_decode * batch.decodes
            + self.attention_seconds(batch)
        )

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with W and S."""
        return self.per_work * batch.prefill_work + self.per_context * batch.decode_context


@dataclass(frozen=True, slots=True)
class PhaseLine:
    """One phase of `TwoPhase`: per_token counts tokens or decodes, per_attention len^2 or context tokens."""

    fixed: float
    per_token: float
    per_attention: float


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """DistServe's form: a line for prefill, one for small and one for large decode batches.

    Prefill: a + b N + c sum(len^2); decode: a + b sum(context) + c D, other coefficients from `large_from`
    decodes on [DistServe, OSDI'24, simdistserve/estimators]. For a chunk, len^2 is 2 W. DistServe's engine
    never mixed the phases; in a mixed step we let the weights be read once, so that the larger of the two
    fixed times counts, and add the rest (our reading).
    """

    profile: Profile
    prefill: PhaseLine
    small_decode: PhaseLine
    large_decode: PhaseLine
    large_from: int

    def step_seconds(self, batch: Batch) -> float:
        """Return how many seconds one step takes."""
        decode = self._decode(batch)
        fixed = max(
            self.prefill.fixed if batch.prefill_tokens else 0.0, decode.fixed if batch.decodes else 0.0
        )
        tokens = self.prefill.per_token * batch.prefill_tokens + decode.per_token * batch.decodes
        return fixed + tokens + self.attention_seconds(batch)

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with W and S."""
        prefill = self.prefill.per_attention * 2 * batch.prefill_work
        return prefill + self._decode(batch).per_attention * batch.decode_context

    def _decode(self, batch: Batch) -> PhaseLine:
        return self.large_decode if batch.decodes >= self.large_from else self.small_decode
