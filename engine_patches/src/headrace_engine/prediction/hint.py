"""A client that knows how long its output will be is believed, until the request proves it wrong."""

from __future__ import annotations

from headrace_engine.prediction.predictor import Features, Predictor


class Hinted:
    """Answers with the client's hint if there is one, else asks `inner`, which learns from all requests."""

    def __init__(self, inner: Predictor) -> None:
        self.inner = inner

    def predict(self, features: Features) -> float:
        """Return the hint, else what `inner` says."""
        if features.hint is None:
            return self.inner.predict(features)
        return features.bounded(features.hint)

    def repredict(self, features: Features, output_so_far: int) -> float:
        """Return the hint while it is ahead, else what `inner` says."""
        if features.hint is None or features.hint <= output_so_far:
            return self.inner.repredict(features, output_so_far)
        return features.bounded(features.hint, output_so_far)

    def learn(self, features: Features, output_tokens: int) -> None:
        """Pass this on to the predictor inside."""
        self.inner.learn(features, output_tokens)

    def close(self) -> None:
        """Pass this on to the predictor inside."""
        self.inner.close()
