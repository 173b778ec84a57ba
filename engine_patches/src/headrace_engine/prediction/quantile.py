"""`Quantile`: as long as the requests that were like it.

Finished lengths are kept in cells: of all requests, and of those that agree in the prompt's length, its
first block or `max_tokens`, see `cells_of`. A prediction is a quantile of one cell. Which kind of cell to
believe is itself learned: the loss of each kind is held against that of the cell of all, on the requests
where the kind could have spoken, and the kind that lost least by comparison is asked first. A cell speaks
once it has `FEWEST` lengths; else the next best kind is asked.

Forgetting is by count: a cell keeps its last `WINDOW` lengths, so a change of traffic is followed within as
many requests of its kind. The number of cells is bounded; the one that learned longest ago goes first. A
length that was cut at its own `max_tokens` counts like any other: those that follow will mostly be cut
there too.
"""

from __future__ import annotations

from functools import lru_cache

from headrace_engine.prediction.length_scale import length_step
from headrace_engine.prediction.predictor import STRETCH, UNKNOWN, Features
from headrace_engine.prediction.window import Window

WINDOW = 256  # lengths of a cell
FEWEST = 8  # lengths before a cell speaks, and, of a request under way, longer ones
CELLS = 2048  # 2 KiB each once full
HALF_LIFE = 1000  # requests in which a kind's loss counts half
COARSE, FINE = 2, 4  # steps for each doubling of a length, as powers of 2
KINDS = 6  # of cells

Key = tuple[int, int, int]
ALL: Key = (0, 0, 0)


def cells_of(features: Features) -> tuple[Key, ...]:
    """Return the cells that a request belongs to, each as its kind and what its requests agree in."""
    return _cells(features.prompt_tokens, features.max_tokens, features.prefix)


@lru_cache(1024)  # as many as run: each is asked for again and again
def _cells(prompt_tokens: int, max_tokens: int, prefix: int) -> tuple[Key, ...]:
    prompt = length_step(prompt_tokens, COARSE)
    return (
        ALL,
        (1, prompt, 0),
        (2, length_step(prompt_tokens, FINE), 0),
        (3, length_step(max_tokens, COARSE), 0),
        (4, 0, prefix),
        (5, prompt, prefix),
    )


class Quantile:
    """The `share` quantile of the output of requests alike; memory is bounded, at about 5 MiB."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share
        self._all = Window(WINDOW)
        self._cells: dict[Key, Window] = {ALL: self._all}  # those that learned last are last
        self._order = tuple(range(KINDS))  # kinds, best first
        self._losses = [0.0] * KINDS  # decayed sums
        self._losses_of_all = [0.0] * KINDS  # on the same requests
        self._keep = 0.5 ** (1 / HALF_LIFE)

    def predict(self, features: Features) -> float:
        """Return the quantile of the best cell that has enough lengths."""
        keys = cells_of(features)
        for kind in self._order:
            cell = self._cells.get(keys[kind])
            if cell is not None and len(cell) >= FEWEST:
                return features.bounded(cell.quantile(self.share))
        return features.bounded(self._all.quantile(self.share) if len(self._all) else UNKNOWN)

    def repredict(self, features: Features, output_so_far: int) -> float:
        """Return the quantile among lengths over `output_so_far`, in the best cell that has enough of them.

        Where none has, twice `output_so_far`.
        """
        keys = cells_of(features)
        for kind in self._order:
            cell = self._cells.get(keys[kind])
            if cell is not None and cell.above(output_so_far) >= FEWEST:
                return features.bounded(cell.quantile(self.share, output_so_far), output_so_far)
        return features.bounded(STRETCH * output_so_far, output_so_far)

    def learn(self, features: Features, output_tokens: int) -> None:
        """Take a length into its cells, after seeing what each would have said."""
        keys = cells_of(features)
        if len(self._all) >= FEWEST:
            self._compare(keys, output_tokens)
        for key in keys:
            cell = self._cells.pop(key, None)
            if cell is None:
                cell = Window(WINDOW)
            self._cells[key] = cell
            cell.add(output_tokens)
        while len(self._cells) > CELLS:
            del self._cells[next(iter(self._cells))]

    def close(self) -> None:
        """Do nothing: there is no thread or file to stop."""

    def _compare(self, keys: tuple[Key, ...], output_tokens: int) -> None:
        share, keep, losses, of_all = self.share, self._keep, self._losses, self._losses_of_all
        base = pinball_loss(self._all.quantile(share), output_tokens, share)
        for kind in range(1, KINDS):
            cell = self._cells.get(keys[kind])
            if cell is not None and len(cell) >= FEWEST:
                losses[kind] = losses[kind] * keep + pinball_loss(cell.quantile(share), output_tokens, share)
                of_all[kind] = of_all[kind] * keep + base
        ratios = [own / other if other else 1.0 for own, other in zip(losses, of_all, strict=True)]
        self._order = tuple(sorted(range(KINDS), key=ratios.__getitem__))


def pinball_loss(predicted: float, output_tokens: float, share: float) -> float:
    """Return the pinball loss, whose mean is least where `predicted` is the `share` quantile."""
    error = output_tokens - predicted
    return share * error if error >= 0 else (share - 1) * error
