"""Chats of several turns: each prompt is the turn before with its answer and something new. Synthetic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.shape import at_rate

BLOCK = 16  # tokens per prefix id; vLLM's block size on most GPUs
IDS_PER_CHAT = 1_000_000  # more than a chat has blocks
ANSWER_TOKENS_PER_SECOND = 20.0  # what the user waits for before thinking


@dataclass(frozen=True, slots=True)
class Habits:
    """How often and how long people chat."""

    mean_turns: float = 5.0  # each turn is the last with probability 1 / mean_turns
    think_seconds: float = 30.0  # mean of an exponential time between an answer and the next prompt
    system_tokens: int = 256  # that all chats begin with

    def __post_init__(self) -> None:
        if self.mean_turns < 1 or self.think_seconds <= 0 or self.system_tokens < 0:
            raise ValueError(f"mean_turns must be 1 or more, think_seconds above 0: {self}")


def make_chats(
    turns: Sequence[Arrival],
    count: int,
    rate: float,
    seed: int,
    *,
    longest: int,
    habits: Habits | None = None,
) -> list[Arrival]:
    """Make `count` requests of chats that start at random, stretched to a mean of `rate` requests/s.

    Each turn's new text and answer have the lengths of one of `turns`. A chat ends when its prompt and answer
    would exceed `longest` tokens. `client` names the chat; prefix ids stand for `BLOCK` tokens each.
    """
    if not turns or longest < 1:
        raise ValueError("chats need a pool of turns and a context to fit in")
    habits = habits or Habits()
    chance = random.Random(f"chats {seed}")  # noqa: S311  (no secret)
    found: list[Arrival] = []
    chat, at = 0, 0.0
    while len(found) < 2 * count:  # those that started late end after the last that counts
        found += _chat(chance, turns, chat, at, longest=longest, habits=habits)
        chat += 1
        at += chance.expovariate(rate / habits.mean_turns)
    return at_rate(sorted(found, key=lambda arrival: arrival.at)[:count], rate)


def _chat(
    chance: random.Random, turns: Sequence[Arrival], chat: int, at: float, *, longest: int, habits: Habits
) -> Iterator[Arrival]:
    text = habits.system_tokens
    while True:
        turn = chance.choice(turns)
        text += turn.prompt_tokens
        if text + turn.output_tokens > longest:
            return
        yield Arrival(at, text, turn.output_tokens, _ids(chat, text, habits), BLOCK, f"chat-{chat}")
        if chance.random() < 1 / habits.mean_turns:
            return
        text += turn.output_tokens
        at += turn.output_tokens / ANSWER_TOKENS_PER_SECOND
        at += chance.expovariate(1 / habits.think_seconds)


def _ids(chat: int, tokens: int, habits: Habits) -> tuple[int, ...]:
    shared = habits.system_tokens // BLOCK
    blocks = -(-tokens // BLOCK)
    first = (chat + 1) * IDS_PER_CHAT
    return (*range(min(shared, blocks)), *range(first + shared, first + blocks))
