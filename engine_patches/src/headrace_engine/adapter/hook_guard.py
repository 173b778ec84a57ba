"""Calls our own code such that an exception costs what was asked for, never the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger("vllm.headrace")


class HookGuard:
    """Calls for one engine; what fails is logged the first time, since it may fail in every step."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def __call__(self, call: Callable[..., Any], *details: Any, failed: Any = None, **named: Any) -> Any:
        """The answer of `call(*details, **named)`, or `failed` if it raises. Never raises."""
        try:
            return call(*details, **named)
        except Exception as error:
            self.report(call, error)
            return failed

    def report(self, call: Callable[..., Any], error: Exception) -> None:
        """Log that `call` raised, for a hook that calls it itself: to be called in between takes its time."""
        name = getattr(call, "__qualname__", repr(call))
        if name not in self._logged:
            self._logged.add(name)
            log.error("headrace: %s failed; the engine goes on without", name, exc_info=error)
