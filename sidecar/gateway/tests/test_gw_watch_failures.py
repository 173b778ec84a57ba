"""Watches that go wrong without an API server's help: each is a failed watch, followed by a pause."""

import asyncio

import pytest

from headrace_gateway.kube import watch


class Ended(BaseException):
    """Ends `follow_objects`, which has no end of its own."""


async def pauses_after(monkeypatch, *watches):
    """The pauses of `follow_objects` when its watches go as given: an exception, or a list of events."""
    pauses, remaining = [], iter(watches)

    async def listed(*_given):
        return "1"

    async def watched(*_given):
        outcome = next(remaining, Ended())
        if isinstance(outcome, BaseException):
            raise outcome
        for event in outcome:
            yield event

    async def pause(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(watch, "_list", listed)
    monkeypatch.setattr(watch, "_watch", watched)
    monkeypatch.setattr(asyncio, "sleep", pause)
    with pytest.raises(Ended):
        await watch.follow_objects(watch.Store("ConfigMap", lambda: None), None)
    return pauses


async def test_an_answer_that_is_no_event_is_a_failed_watch(monkeypatch):
    text, malformed = TypeError("string indices must be integers"), Exception("Malformed JSON")
    assert await pauses_after(monkeypatch, text, malformed) == [0.5, 1.0]


async def test_a_watch_that_ends_at_once_is_not_repeated_at_once(monkeypatch):
    assert await pauses_after(monkeypatch, [], []) == [0.5, 0.5]
