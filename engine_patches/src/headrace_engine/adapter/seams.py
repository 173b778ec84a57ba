"""What the adapter relies on inside vLLM, and whether this vLLM has it.

The window of versions is the one that the tests run against. Within it, and before anything is touched, each
seam is looked up, so that a patched vLLM is noticed at start and not by a wrong step.
"""

from __future__ import annotations

from typing import Any

OLDEST = (0, 30)
BEYOND = (0, 33)

METHODS = (
    "add_request",
    "get_request_counts",
    "schedule",
    "shutdown",
    "update_from_output",
    "_free_request",
    "_inflight_prefill_reserved_blocks",
    "_preempt_request",
    "_request_blocks_can_be_freed",
    "_reserve_prefill_lookahead",
)
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
ATTRIBUTES = (
    "block_size",
    "encoder_cache_manager",
    "is_encoder_decoder",
    "kv_cache_config",
    "kv_cache_manager",
    "lora_config",
    "max_num_running_reqs",
    "need_mamba_block_aligned_split",
    "num_spec_tokens",
    "prev_step_scheduled_req_ids",
    "requests",
    "requires_kv_delivery",
    "scheduler_config",
    "_inflight_prefills",
)


def version_mismatch(version: str) -> str | None:
    """Why this vLLM version is not supported; None if it is."""
    try:
        found = tuple(int(part) for part in version.split(".")[:2])
    except ValueError:
        return f"vLLM version {version!r} can't be read; supported: {_window()}"
    if OLDEST <= found < BEYOND:
        return None
    return f"vLLM {version} is not supported; supported: {_window()}"


def missing_seams(scheduler: type, queue: type, wanted_of_queue: frozenset[str]) -> str | None:
    """Which seam vLLM's `scheduler` class, or our `queue` under its interface, lacks; None if none."""
    missing = [name for name in METHODS if not callable(getattr(scheduler, name, None))]
    reads = _names(scheduler.schedule)  # type: ignore[attr-defined]
    missing += [f"{name} in schedule()" for name in READ_BY_SCHEDULE if name not in reads]
    sets = _names(vars(scheduler)["__init__"])
    missing += [name for name in ATTRIBUTES if name not in sets]
    missing += [f"queue method {name}" for name in sorted(wanted_of_queue) if name not in vars(queue)]
    return f"this vLLM lacks what policies need: {', '.join(missing)}" if missing else None


def _names(function: Any) -> frozenset[str]:
    """Attributes and globals that a function names, its nested functions included."""
    names, codes = set(), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    return frozenset(names)


def _window() -> str:
    return f"{OLDEST[0]}.{OLDEST[1]} up to, not including, {BEYOND[0]}.{BEYOND[1]}"
