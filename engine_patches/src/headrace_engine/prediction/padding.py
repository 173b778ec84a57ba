"""How much to add to predicted lengths so that few requests outgrow them, found out while serving.

EconoServe adds a fixed percentage per workload, its sweet spot: 10, 15 and 20 % for three data sets, where
22.5, 26.8 and 30.2 % of the requests still outgrow what was allocated [EconoServe, section 2.3 and figure 4c;
that "prediction accuracy" is the share which does not is our reading]. Those percentages belong to its
predictor. The share carries over to others, so that is what is held here.
"""

from __future__ import annotations

from math import ceil

from headrace_engine.prediction.window import Window

FEWEST = 32  # finished requests before the initial percentage is left


class Padding:
    """The smallest whole `percent` with which at most `target_percent` of the last requests were too short.

    Pure and of constant memory. `percent` lies in [0, most]; where `most` is not enough, it is `most`.
    """

    def __init__(
        self, target_percent: int = 25, *, initial: int = 15, most: int = 100, window: int = 512
    ) -> None:
        self.percent = initial
        self._target = target_percent
        self._most = most
        self._needed = Window(window)  # padding with which each request would just have been long enough

    def record_finished(self, predicted: float, output_tokens: int) -> None:
        """Take in how many output tokens a request had that was predicted to have `predicted`, unpadded."""
        excess = output_tokens / max(predicted, 1.0) - 1.0
        self._needed.add(ceil(min(max(excess, 0.0), 1e6) * 100 - 1e-9))
        count = len(self._needed)
        if count >= FEWEST:
            may_fail = count * self._target // 100
            self.percent = min(
                self._needed.place(count - 1 - may_fail) if may_fail < count else 0, self._most
            )
