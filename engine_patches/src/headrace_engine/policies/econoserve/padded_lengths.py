"""How many output tokens a request will be given room for: its predicted length, padded.

Under-prediction costs more than over-prediction, so predictions are padded [EconoServe, section 3.3.2]. The
paper takes a constant for each trace, at its sweet spot; the padding can also be calibrated while serving,
see `prediction.padding`.
"""

from __future__ import annotations

from math import ceil

from headrace_engine.policies.engine_view import EngineView, RequestView
from headrace_engine.prediction.padding import Padding


class PaddedLengths:
    """Predicted lengths with padding, `under_percent` 0: the constant one."""

    def __init__(self, padding_percent: int, under_percent: int) -> None:
        self._constant = padding_percent
        self.outgrown = 0  # requests that ended longer than their padded prediction
        self._padding = Padding(under_percent, initial=padding_percent) if under_percent else None
        # Unpadded, a request's end as predicted stays until the request is there.
        self.steady = not (padding_percent or under_percent)

    @property
    def percent(self) -> int:
        """The padding that is added to predictions now."""
        return self._constant if self._padding is None else self._padding.percent

    def predict_left(self, request: RequestView, view: EngineView) -> int:
        """Predict the output tokens yet to come, at least 1."""
        return self._left(view.predicted_output(request), request, view)

    def predict_left_ahead(self, request: RequestView, view: EngineView) -> int:
        """Predict the output tokens yet to come if the next one is not the last."""
        return self._left(view.predict_ahead(request), request, view)

    def _left(self, predicted: float, request: RequestView, view: EngineView) -> int:
        padded = ceil(predicted if self.steady else predicted * (100 + self.percent) / 100)
        return max(min(padded, view.most_output(request)) - request.num_output_tokens, 1)

    def record_finished(self, request: RequestView, predicted: float) -> None:
        """Take in that `request` ran to its end; `predicted` output tokens were expected when it arrived."""
        self.outgrown += request.num_output_tokens > ceil(predicted * (100 + self.percent) / 100)
        if self._padding is not None:
            self._padding.record_finished(predicted, request.num_output_tokens)
