"""A hash of everything a scheduler decided: the same on any machine if the decisions are."""

from __future__ import annotations

import hashlib
from typing import Any


class Decisions:
    """Takes in every step's `SchedulerOutput`: who got how many tokens, in order, and who was preempted."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, output: Any) -> None:
        """Add what the scheduler decided in one step."""
        tokens = output.num_scheduled_tokens
        line = " ".join(tokens)
        if output.total_num_scheduled_tokens != len(tokens):
            line += "|" + " ".join(map(str, tokens.values()))
        if output.preempted_req_ids:
            line += "!" + " ".join(sorted(output.preempted_req_ids))
        self._hash.update(f"{line}\n".encode())

    def hexdigest(self) -> str:
        """Return the hash of all steps so far, in hex digits."""
        return self._hash.hexdigest()
