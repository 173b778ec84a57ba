"""What the encoders of pictures and the like still have to do, and how long they take; nothing imports vLLM.

A step that encodes computes its tokens besides. What it takes beyond what these take is the encoders'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

from headrace_engine.adapter.vllm_types import SchedulerOutput, VllmRequest, VllmScheduler

LATEST = 15  # steps; their median is not moved by a stalled machine, nor by what the first step compiles


class EncoderTime:
    """Seconds of a token that encoders yield, the median over the latest steps that had some."""

    def __init__(self) -> None:
        self._each: deque[float] = deque(maxlen=LATEST)
        self.per_token = 0.0  # 0 before the first

    def add(self, tokens: int, seconds: float) -> None:
        """Take in that encoders yielded so many tokens in a step, which took so much longer than without."""
        if tokens > 0:
            self._each.append(max(seconds, 0.0) / tokens)
            self.per_token = median(self._each)


class Encoders:
    """What one vLLM scheduler has its encoders do, in tokens that they yield."""

    def __init__(self, scheduler: VllmScheduler) -> None:
        self._scheduler = scheduler

    def missing(self, request: VllmRequest, computed: int) -> int:
        """Count the tokens that encoders still have to yield for `request`, of which so many are computed."""
        if self._scheduler.is_encoder_decoder:  # all at the start, none is kept for others
            return 0 if computed else _yielded(request, range(len(request.mm_features)))
        kept = getattr(self._scheduler.encoder_cache_manager, "cached", ())  # a plug-in's may have none
        ahead = (
            place
            for place, each in enumerate(request.mm_features)
            if each.mm_position.offset + each.mm_position.length > computed and each.identifier not in kept
        )
        return _yielded(request, ahead)


def count_encoded(output: SchedulerOutput, requests: Mapping[str, VllmRequest]) -> int:
    """Count the tokens that encoders yield in a step, by its `SchedulerOutput` and vLLM's requests by id."""
    return sum(_yielded(requests[name], inputs) for name, inputs in output.scheduled_encoder_inputs.items())


def _yielded(request: VllmRequest, inputs: Iterable[int]) -> int:
    tokens: int = sum(map(request.get_num_encoder_embeds, inputs))
    return tokens
