"""What a predictor is told of a request, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

UNKNOWN = 256.0  # output tokens, before any request has finished
STRETCH = 2.0  # of a request longer than all that are known: as much again (our reading; there is no data)


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of a request at arrival, for free."""

    prompt_tokens: int
    max_tokens: int  # most output tokens that it may have
    prefix: int = 0  # hash of the prompt's first KV block, 0 if it has none
    hint: int | None = None  # output tokens that the client expects
    token_ids: Sequence[int] | None = None  # the prompt's; None: unknown

    def bounded(self, output_tokens: float, more_than: int = 0) -> float:
        """Return `output_tokens`, at least one more than `more_than`, and in the end at most `max_tokens`."""
        return float(max(1, min(max(output_tokens, more_than + 1), self.max_tokens)))


class Predictor(Protocol):
    """Predicts output lengths; all results are output tokens in all, in [1, max_tokens]."""

    def predict(self, features: Features) -> float:
        """Predict the output length of a request as it arrives."""

    def repredict(self, features: Features, output_so_far: int) -> float:
        """Predict again, of a request that has `output_so_far` tokens and goes on: more than those."""

    def learn(self, features: Features, output_tokens: int) -> None:
        """Learn from a request that has finished by itself; one that was aborted says nothing."""

    def close(self) -> None:
        """End: nothing is asked or told any more."""
