"""Lengths on a scale on which each doubling has equally many steps."""

from __future__ import annotations


def length_step(tokens: int, fineness: int) -> int:
    """Return the step of a length, on a scale of 2**fineness steps per doubling; with 2, 64 to 79 are one."""
    tokens = max(tokens, 0)
    drop = tokens.bit_length() - fineness - 1
    return tokens if drop <= 0 else (drop << fineness) + (tokens >> drop)


def step_start(step: int, fineness: int) -> int:
    """Return the shortest length of a step; of the step after it, one more than the longest."""
    drop = (step >> fineness) - 1
    return step if drop <= 0 else step - (drop << fineness) << drop
