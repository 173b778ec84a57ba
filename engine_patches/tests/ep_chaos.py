"""A policy that decides everything at random, but by a seed: order, admission, budget, who is limited.

Also an entry point of its own, for engines that get it on PYTHONPATH beside the plugin.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.plan import RunningLimits


@dataclass(frozen=True)
class Params:
    pass


class Chaos:
    """All four parts in one; `done` counts what was really asked for."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.waiting: list[RequestView] = []
        self.done = {"skipped": 0, "preempted": 0, "capped": 0, "reordered": 0}

    def add(self, request: RequestView) -> None:
        self.waiting.append(request)

    def discard(self, request: RequestView) -> None:
        self.waiting.remove(request)

    def ranked(self, view: EngineView) -> Iterator[RequestView]:
        yield from self.random.sample(self.waiting, len(self.waiting))

    def admit(self, ranked: Iterator[RequestView], view: EngineView) -> Iterator[RequestView]:
        for request in ranked:
            if view.running and self.random.random() < 0.1:
                return
            yield request

    def budget(self, view: EngineView) -> int:
        limit = view.limits.max_step_tokens
        return self.random.choice([1, 7, 33, 64, limit, limit])

    def limit_running(self, view: EngineView) -> RunningLimits:
        running = list(view.running)
        self.random.shuffle(running)
        skipped = [request for request in running if self.random.random() < 0.3]
        preempted = running[:1] if len(running) > 2 and self.random.random() < 0.08 else []
        caps = {request: self.random.randint(1, 20) for request in [*running, *self.waiting][:8]}
        for key, asked in zip(self.done, (skipped, preempted, caps, running), strict=True):
            self.done[key] += len(asked)
        return RunningLimits(running, skipped, preempted, caps)


def chaos(seed: int = 1) -> tuple[Policy, Chaos]:
    parts = Chaos(seed)
    return Policy(parts, parts.admit, parts.budget, parts.limit_running), parts


def compose(params: Params, limits: EngineLimits, step_budget: object) -> Policy:
    return chaos()[0]


def register() -> None:
    """CHAOS becomes a policy of this process."""
    from headrace_engine.policies import registry

    registry.POLICIES["CHAOS"] = sys.modules[__name__]  # type: ignore[index]
