"""What a plan is made from, and what comes back: between the operator and the process that makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from pydantic import TypeAdapter

from headrace_engine.contracts.traffic import TrafficWindow
from headrace_operator.api import Reason
from headrace_operator.api.bodies import JsonObject
from headrace_operator.api.placement import PlanStatus

_Document = TypeVar("_Document")


@dataclass(frozen=True, slots=True)
class ServiceTraffic:
    """A raw LLMService, and what all of its engines were asked in the last hour, by time."""

    service: JsonObject
    windows: tuple[TrafficWindow, ...]
    silent: bool = False  # none of its engines has told anything


@dataclass(frozen=True, slots=True)
class Question:
    """A raw GPUPool with `spec.placement`, and the services of that, as far as they exist."""

    pool: JsonObject
    services: tuple[ServiceTraffic, ...]
    time: str  # of the plan; RFC 3339, UTC


@dataclass(frozen=True, slots=True)
class Answer:
    """The pool's condition `Planned` is true if there is a plan."""

    reason: Reason
    message: str
    plan: PlanStatus | None = None


def dump_json(kind: type[_Document], document: _Document) -> bytes:
    """Write a question or an answer."""
    return TypeAdapter(kind).dump_json(document)


def load_json(kind: type[_Document], text: bytes) -> _Document:
    """Read one; ValueError if it is none."""
    return TypeAdapter(kind).validate_json(text)
