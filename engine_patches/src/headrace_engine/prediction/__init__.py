"""How many output tokens a request will have: predictors that learn from the requests an engine finished.

One predictor belongs to one engine, hence to one service. `predict` and `learn` run on the scheduler's thread
and take microseconds; what takes longer, `Learned` does on a thread of its own.
"""

from __future__ import annotations

from headrace_engine.contracts import Prediction
from headrace_engine.prediction.hint import Hinted
from headrace_engine.prediction.mean import RunningMean
from headrace_engine.prediction.padding import Padding
from headrace_engine.prediction.predictor import Features, Predictor
from headrace_engine.prediction.quantile import Quantile

__all__ = [
    "Features",
    "Hinted",
    "Padding",
    "Prediction",
    "Predictor",
    "Quantile",
    "RunningMean",
    "build_predictor",
]


def build_predictor(prediction: Prediction) -> Predictor:
    """Build the predictor that the policy document asks for; one that is `Learned` starts its thread.

    Raises ImportError for `Learned` where there is no torch.
    """
    if prediction.predictor == "None":
        return Hinted(RunningMean())
    quantile = Quantile(prediction.quantile_percent / 100)
    if prediction.predictor == "Quantile":
        return Hinted(quantile)
    from headrace_engine.prediction.learned import Learned  # noqa: PLC0415 - torch, only where it is asked for

    return Hinted(Learned(quantile).start())
