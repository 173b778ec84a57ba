"""Power of two choices by tokens in flight.

Nobody ships just this: vllm-router and sglang-router draw two and compare requests (vllm-project/router,
src/policies/power_of_two.rs at fa999f9; sgl-project/sglang, sgl-router/src/policies/power_of_two.rs at
00b01f9), llm-d counts tokens until the first one comes. It is what one gets from both.
"""

from collections.abc import Sequence

from e2e.bench.rivals.gateway import Request, Rival


class PowerOfTwoTokens(Rival):
    """Of two engines drawn by lot the one with fewer prompt tokens in flight; of equal ones the first."""

    def pick(self, _request: Request, candidates: Sequence[str]) -> str:
        """Draw two, and take the less loaded."""
        drawn = self.random.sample(candidates, min(2, len(candidates)))
        return min(drawn, key=lambda address: self.loads[address].prefill_tokens)
