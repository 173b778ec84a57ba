"""What the adapter relies on inside vLLM, and whether this vLLM has it.

The window of versions is the one that the tests run against. Within it, and before anything is touched, each
part is looked up, so that a patched vLLM is noticed at start and not by a wrong step.
"""

from __future__ import annotations

import inspect
from typing import Any

from headrace_engine.adapter.vllm_types import VllmScheduler

SUPPORTED = ((0, 30), (0, 31), (0, 32))  # releases, oldest first; the docs name the first and the last
OLDEST, NEWEST = SUPPORTED[0], SUPPORTED[-1]
BEYOND = (NEWEST[0], NEWEST[1] + 1)
REQUIREMENT = f"vllm>={OLDEST[0]}.{OLDEST[1]},<{BEYOND[0]}.{BEYOND[1]}"  # for pip

# What the adapter uses of vLLM's scheduler.
METHODS = tuple(
    name
    for name, member in vars(VllmScheduler).items()
    if inspect.isfunction(member) and not name.startswith("__")
)
ATTRIBUTES = tuple(VllmScheduler.__annotations__)
READ_BY_SCHEDULE = (
    "current_step",
    "max_num_scheduled_tokens",
    "next_decode_eligible_step",
    "peek_request",
    "pop_request",
    "running",
    "waiting",
    "_reserve_prefill_lookahead",
)


def explain_unsupported_version(version: str) -> str | None:
    """Explain why this vLLM version is not supported; None if it is."""
    try:
        found = tuple(int(part) for part in version.split(".")[:2])
    except ValueError:
        return f"vLLM version {version!r} can't be read; supported: {_window()}"
    if OLDEST <= found < BEYOND:
        return None
    return f"vLLM {version} is not supported; supported: {_window()}"


def explain_missing_parts(scheduler: type, queue: type, wanted_of_queue: frozenset[str]) -> str | None:
    """Say what vLLM's `scheduler` class, or our `queue` under its interface, lacks; None if nothing."""
    missing = [name for name in METHODS if not callable(getattr(scheduler, name, None))]
    reads = _names(scheduler.schedule)  # type: ignore[attr-defined]
    missing += [f"{name} in schedule()" for name in READ_BY_SCHEDULE if name not in reads]
    sets = _names(vars(scheduler)["__init__"])
    missing += [name for name in ATTRIBUTES if name not in sets]
    missing += [f"queue method {name}" for name in sorted(wanted_of_queue) if name not in vars(queue)]
    return f"this vLLM lacks what policies need: {', '.join(missing)}" if missing else None


def _names(function: Any) -> frozenset[str]:
    """Collect the attributes and globals that a function names, its nested functions included."""
    names, codes = set(), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    return frozenset(names)


def _window() -> str:
    return f"{OLDEST[0]}.{OLDEST[1]} up to, not including, {BEYOND[0]}.{BEYOND[1]}"
