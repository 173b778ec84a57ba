"""What a request shall meet: its service's targets, or what its client asked for within the service's limits.

How a client asks is in `contracts.wishes`. A wish that is no number, out of range or not allowed is left out
and counted; the request is served like any other. Nothing here imports vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace_engine.contracts import Slo, wishes
from headrace_engine.control.records import Target
from headrace_engine.cost.model import Batch, CostModel, unloaded_seconds
from headrace_engine.policies.view import NO_TARGETS, Targets

KINDS = ("ttft", "tbt", "jct")
LONGEST_MS = 24 * 3600 * 1000.0  # of a target
MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a client asked for and may have; `ignored` counts what it may not."""

    targets: Targets = NO_TARGETS
    output_tokens: int | None = None
    ignored: int = 0


NO_WISHES = Wishes()


def read_wishes(request_id: str, extra_args: Mapping[str, Any] | None, slo: Slo) -> Wishes:
    """The wishes in a request's id and `SamplingParams.extra_args`, which win; not clamped yet."""
    told: Mapping[str, Any] = wishes.from_request_id(request_id)
    if extra_args:
        told = {**told, **extra_args}
    if not told:
        return NO_WISHES
    ignored = 0
    found: dict[str, float] = {}
    for kind in KINDS:
        given = told.get(f"headrace_{kind}_ms")
        if given is not None:
            value = _number(given, LONGEST_MS)
            if value is None or not _allowed(slo, kind):
                ignored += 1
            else:
                found[kind] = value / 1000
    tokens = None
    given = told.get("headrace_output_tokens")
    if given is not None:
        value = _number(given, MOST_TOKENS)
        if value is None or slo.per_request is None:
            ignored += 1
        else:
            tokens = int(value)
    if not (found or tokens or ignored):
        return NO_WISHES
    return Wishes(Targets(**found), tokens, ignored)


def resolve(slo: Slo, wish: Targets, unloaded: float | None) -> Targets:
    """The targets of a request that takes `unloaded` seconds alone; None if that is not known yet.

    A wish counts up to the tightest that `slo.per_request` allows: the service's own if it names none.
    """
    scaled = None
    if slo.jct_scale_percent is not None and unloaded is not None:
        scaled = slo.jct_scale_percent / 100 * unloaded
    allowed = slo.per_request
    if allowed is None or wish == NO_TARGETS:
        return Targets(_seconds(slo.ttft_ms), _seconds(slo.tbt_ms), _either(_seconds(slo.jct_ms), scaled))
    return Targets(
        _clamped(wish.ttft, _seconds(slo.ttft_ms), allowed.ttft_ms),
        _clamped(wish.tbt, _seconds(slo.tbt_ms), allowed.tbt_ms),
        _clamped(wish.jct, _either(_seconds(slo.jct_ms), scaled), allowed.jct_ms),
    )


def set_of(targets: Targets) -> Target:
    """Which targets there are."""
    found = Target(0)
    for kind in KINDS:
        if getattr(targets, kind) is not None:
            found |= Target[kind.upper()]
    return found


def impossible(  # noqa: PLR0917
    targets: Targets,
    cost: CostModel,
    prompt_tokens: int,
    output_tokens: int,
    step_tokens: int,
    tokens_per_step: float = 1.0,
) -> Target:
    """Those targets that such a request would miss even alone on the engine."""
    found = Target(0)
    if targets.ttft is not None and unloaded_seconds(cost, prompt_tokens, 1, step_tokens) > targets.ttft:
        found |= Target.TTFT
    if targets.tbt is not None and output_tokens > 1:
        mean_context = prompt_tokens + output_tokens // 2
        if cost.step_seconds(Batch(decodes=1, decode_context=mean_context)) > targets.tbt * tokens_per_step:
            found |= Target.TBT
    alone = unloaded_seconds(cost, prompt_tokens, output_tokens, step_tokens, tokens_per_step)
    if targets.jct is not None and alone > targets.jct:
        found |= Target.JCT
    return found


def _allowed(slo: Slo, kind: str) -> bool:
    """Whether a client may set this target: it needs a bound, the service's own if no other."""
    if slo.per_request is None:
        return False
    bounds = [getattr(slo.per_request, f"{kind}_ms"), getattr(slo, f"{kind}_ms")]
    if kind == "jct":
        bounds.append(slo.jct_scale_percent)
    return any(bound is not None for bound in bounds)


def _number(given: Any, most: float) -> float | None:
    """`given` as a number from 1 to `most`; None if it is none."""
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        return None
    try:
        value = float(given)
    except (ValueError, OverflowError):
        return None
    return value if 1 <= value <= most else None


def _clamped(wish: float | None, own: float | None, tightest_ms: int | None) -> float | None:
    tightest = own if tightest_ms is None else tightest_ms / 1000
    if wish is None or tightest is None:
        return own
    return max(wish, tightest)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _either(left: float | None, right: float | None) -> float | None:
    return right if left is None else left
