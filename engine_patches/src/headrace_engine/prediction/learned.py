"""`Learned`: a small network that reads the prompt, trained from this engine's own traffic while it serves.

Training runs on a thread of its own, at the lowest priority, on one core, for at most `DUTY` of the time, and
only as long as there are new requests to learn from. One finished request in `HELD_BACK` is never trained on.
The network answers only once it was better than `Quantile` on the last of those, by `MARGIN`; whenever it is
not any more, or fails, `Quantile` answers. Memory is bounded, at about 20 MiB besides torch, which vLLM has
loaded anyway.

How far training has come depends on the machine, so predictions repeat only where `work` is called by hand.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from headrace_engine.prediction.network import Frozen, Network, Sight, see_request
from headrace_engine.prediction.predictor import Features
from headrace_engine.prediction.quantile import Quantile, pinball_loss

REMEMBERED = 4096  # finished requests that are trained on, 1 KiB each
HELD_BACK = 8  # one in so many is kept for validation
VALIDATED_ON = 512  # of those, at most
FEWEST = 64  # before the network can be trusted
MARGIN = 0.97  # of the loss of `Quantile`
BATCH = 64
PASSES = 12  # over each request, on average
VALIDATE_EVERY = 50  # steps of training
DUTY = 0.05  # share of one core
PAUSE = 0.2  # seconds, at least, between two looks for work

log = logging.getLogger("vllm.headrace")


@dataclass(frozen=True, slots=True)
class Example:
    """A finished request, as an example to learn from."""

    sight: Sight
    output_tokens: int
    expected: float  # by `Quantile`


class Learned:
    """Predicts with the network while it proves better, else with `quantile`."""

    def __init__(self, quantile: Quantile, seed: int = 0) -> None:
        self.failed = False
        self.validation: tuple[float, float] | None = None  # mean loss of network and `Quantile`
        self._quantile = quantile
        self._network = Network(seed)
        self._chance = random.Random(seed)  # noqa: S311
        self._trusted: Frozen | None = None
        self._told: deque[Example] = deque(maxlen=REMEMBERED)  # from the scheduler's thread to the other
        self._examples: list[Example] = []  # a ring
        self._held_back: deque[Example] = deque(maxlen=VALIDATED_ON)
        self._count = 0
        self._oldest = 0  # index of the example that is replaced next
        self._due = 0.0  # steps of training
        self._steps = 0
        self._closed = threading.Event()

    @property
    def trusted(self) -> bool:
        """Whether the network answers."""
        return self._trusted is not None

    def predict(self, features: Features) -> float:
        """Predict by the network where it is trusted."""
        expected, network = self._quantile.predict(features), self._trusted
        if network is None:
            return expected
        more = network.quantile(see_request(features, expected), self._quantile.share)
        return expected if more is None else features.bounded(more)

    def repredict(self, features: Features, output_so_far: int) -> float:
        """Predict likewise, of a request under way."""
        network = self._trusted
        if network is not None:
            seen = see_request(features, self._quantile.predict(features))
            more = network.quantile(seen, self._quantile.share, output_so_far)
            if more is not None:
                return features.bounded(more, output_so_far)
        return self._quantile.repredict(features, output_so_far)

    def learn(self, features: Features, output_tokens: int) -> None:
        """Hand a finished request to the other thread, and to `Quantile`."""
        expected = self._quantile.predict(features)
        self._quantile.learn(features, output_tokens)
        if not self.failed:
            self._told.append(Example(see_request(features, expected), output_tokens, expected))

    def start(self) -> Learned:
        """Train from now on, until `close`."""
        threading.Thread(target=self._run, name="headrace-predictor", daemon=True).start()
        return self

    def close(self) -> None:
        """Stop training, after the step under way."""
        self._closed.set()

    def work(self, most: int = 1) -> int:
        """Take in what was told and make at most `most` steps of training of those due; gives how many."""
        while self._told:
            self._take(self._told.popleft())
        made = 0
        while made < most and self._due >= 1 and len(self._examples) >= BATCH:
            batch = self._chance.sample(self._examples, BATCH)
            self._network.train([each.sight for each in batch], [each.output_tokens for each in batch])
            self._due -= 1
            self._steps += 1
            made += 1
            if self._steps % VALIDATE_EVERY == 0:
                self._validate()
        return made

    def _take(self, example: Example) -> None:
        self._count += 1
        if self._count % HELD_BACK == 0:
            self._held_back.append(example)
            return
        self._due = min(self._due + PASSES / BATCH, PASSES * REMEMBERED / BATCH)
        if len(self._examples) < REMEMBERED:
            self._examples.append(example)
        else:
            self._examples[self._oldest] = example
            self._oldest = (self._oldest + 1) % REMEMBERED

    def _validate(self) -> None:
        held, share = list(self._held_back), self._quantile.share
        if len(held) < FEWEST:
            return
        network = self._network.frozen()
        told = network.quantiles([each.sight for each in held], share)
        own = mean_loss(told, held, share)
        other = mean_loss([each.expected for each in held], held, share)
        self.validation = own, other
        self._trusted = network if own <= MARGIN * other else None

    def _run(self) -> None:
        try:
            self._lower_priority()
            while not self._closed.is_set():
                begun = time.thread_time()
                self.work()
                spent = time.thread_time() - begun
                self._closed.wait(max(spent * (1 / DUTY - 1), 0.0 if self._due >= 1 else PAUSE))
        except Exception:
            log.exception("headrace: training the length predictor failed; quantiles are used from now on")
            self.failed = True
            self._trusted = None
            self._told.clear()

    def _lower_priority(self) -> None:
        """Take one core at the lowest priority, for this thread alone."""
        limit_torch()
        with suppress(OSError, AttributeError):  # not every system has priorities by thread
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def mean_loss(told: Sequence[float], examples: Sequence[Example], share: float) -> float:
    """Return the mean pinball loss of predictions."""
    losses = [
        pinball_loss(each, example.output_tokens, share) for each, example in zip(told, examples, strict=True)
    ]
    return sum(losses) / len(losses)


def limit_torch() -> None:
    """Have torch use one core on the calling thread, and as many as before on all others.

    torch sets the number both for the calling thread and for threads that first use it later, so a thread
    that ends at once sets the second back.
    """
    import torch  # noqa: PLC0415 - only where it is asked for

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    restorer = threading.Thread(target=torch.set_num_threads, args=(before,))
    restorer.start()
    restorer.join()
