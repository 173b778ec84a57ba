"""One request of a workload: when it arrives and how long it is."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_engine.policies.engine_view import NO_TARGETS, Targets


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request; a workload is a list of them, sorted by `at`.

    `prefix` names the prompt's blocks of `prefix_block` tokens from its start on, the last perhaps only
    partly filled: two prompts whose first k ids agree begin with the same k blocks. Empty: shares with none.
    """

    at: float  # seconds since the workload's start
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] = ()
    prefix_block: int = 0
    client: str = ""
    targets: Targets = NO_TARGETS  # that its client asks for
    hint: int | None = None  # output tokens that its client expects

    @property
    def tokens(self) -> int:
        """Prompt and output together: the context that the model must allow."""
        return self.prompt_tokens + self.output_tokens
