"""`None`: no prediction was asked for. Policies that need a length all the same get the running mean."""

from __future__ import annotations

from headrace_engine.prediction.predictor import STRETCH, UNKNOWN, Features

HALF_LIFE = 500  # requests


class RunningMean:
    """The mean output of finished requests, in which one counts half after 500 more; constant memory.

    A policy that plans with lengths needs the typical one even when none is predicted for each request.
    `max_tokens` would not do: clients mostly leave it at the context's length, a hundred times what they use.
    """

    def __init__(self) -> None:
        self._keep = 0.5 ** (1 / HALF_LIFE)
        self._weight = 0.0
        self._mean = UNKNOWN

    def predict(self, features: Features) -> float:
        """Predict the mean of recent output lengths."""
        return features.bounded(self._mean)

    def repredict(self, features: Features, output_so_far: int) -> float:
        """Return the mean, or twice what there is of a request that outgrew it."""
        if output_so_far < self._mean - 1:
            return features.bounded(self._mean, output_so_far)
        return features.bounded(STRETCH * output_so_far, output_so_far)

    def learn(self, features: Features, output_tokens: int) -> None:  # noqa: ARG002
        """Takes the length into the mean."""
        self._weight = self._weight * self._keep + 1
        self._mean += (output_tokens - self._mean) / self._weight

    def close(self) -> None:
        """Do nothing: there is no thread or file to stop."""
