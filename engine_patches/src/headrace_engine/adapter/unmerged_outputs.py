"""Hands a resumed request's outputs from vLLM's output processor to its API server one by one.

vLLM merges outputs that nobody has taken yet. The tokens that another engine delivered are there all at once,
and what vLLM's parsers of tool calls and reasoning make of a text depends on the pieces in which they get it:
single tokens, when an engine generates them.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from vllm.v1.engine.output_processor import RequestOutputCollector


class UnmergedOutputs(RequestOutputCollector):
    """A collector that merges nothing."""

    backlog: deque[Any]  # outputs, and at its end perhaps an exception

    def put(self, output: Any) -> None:
        """Take in an output, or an exception that is to be raised."""
        self.backlog.append(output)
        self.ready.set()

    async def get(self) -> Any:
        """Return the next output, once there is one; raises an exception that was put."""
        while not self.backlog:
            await self.ready.wait()
        return self.get_nowait()

    def get_nowait(self) -> Any:
        """Return the next output; None if there is none yet."""
        if not self.backlog:
            return None
        output = self.backlog.popleft()
        if not self.backlog:
            self.ready.clear()
        if isinstance(output, Exception):
            raise output
        return output


def keep_apart(collector: RequestOutputCollector) -> None:
    """Let `collector`, which has taken in nothing yet, merge nothing."""
    collector.__class__ = UnmergedOutputs
    collector.backlog = deque()
