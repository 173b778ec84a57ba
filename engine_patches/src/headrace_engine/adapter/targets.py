"""What a request shall meet: its service's targets, or what its client asked for within the service's limits.

How a client overrides its targets is in `contracts.request_overrides`. An override that is no number, out of
range or not allowed is left out and counted; the request is served like any other. Nothing here imports vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from headrace_engine.contracts import Slo, request_overrides
from headrace_engine.control.records import Target
from headrace_engine.cost.model import Batch, CostModel
from headrace_engine.policies.engine_view import NO_TARGETS, Targets

KINDS = ("ttft", "tpot", "e2e")
LONGEST_MS = 24 * 3600 * 1000.0  # of a target
MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RequestOverrides:
    """What a client overrides and may; `ignored` counts what it may not."""

    targets: Targets = NO_TARGETS
    output_tokens: int | None = None
    ignored: int = 0


NO_OVERRIDES = RequestOverrides()
_TARGET_ARGUMENTS = {kind: request_overrides.argument_name(f"{kind}_ms") for kind in KINDS}
_LENGTH_ARGUMENT = request_overrides.argument_name("output_tokens")
_FLAGS = {  # by which of `KINDS` are set
    are_set: Target(sum(flag for flag, is_set in zip(Target, are_set, strict=True) if is_set))
    for are_set in product((False, True), repeat=len(KINDS))
}


def read_overrides(request_id: str, extra_args: Mapping[str, Any] | None, slo: Slo) -> RequestOverrides:
    """Read the overrides in a request's id and `SamplingParams.extra_args`, which win; not clamped yet."""
    told: Mapping[str, Any] = request_overrides.parse_request_id(request_id)
    if extra_args:
        told = {**told, **extra_args}
    if not told:
        return NO_OVERRIDES
    ignored = 0
    found: dict[str, float] = {}
    for kind, argument in _TARGET_ARGUMENTS.items():
        given = told.get(argument)
        if given is not None:
            value = _number(given, LONGEST_MS)
            if value is None or not _is_allowed(slo, kind):
                ignored += 1
            else:
                found[kind] = value / 1000
    tokens = None
    given = told.get(_LENGTH_ARGUMENT)
    if given is not None:
        value = _number(given, MOST_TOKENS)
        if value is None or slo.per_request is None:
            ignored += 1
        else:
            tokens = int(value)
    if not (found or tokens or ignored):
        return NO_OVERRIDES
    return RequestOverrides(Targets(**found), tokens, ignored)


def resolve_targets(slo: Slo, override: Targets, unloaded: float | None) -> Targets:
    """Resolve the targets of a request that takes `unloaded` seconds alone; None if that is not known yet.

    An override counts up to the tightest that `slo.per_request` allows: the service's own if it names none.
    """
    scaled = None
    if slo.e2e_scale_percent is not None and unloaded is not None:
        scaled = slo.e2e_scale_percent / 100 * unloaded
    allowed = slo.per_request
    if allowed is None or override == NO_TARGETS:
        return Targets(_seconds(slo.ttft_ms), _seconds(slo.tpot_ms), _either(_seconds(slo.e2e_ms), scaled))
    return Targets(
        _clamped(override.ttft, _seconds(slo.ttft_ms), allowed.ttft_ms),
        _clamped(override.tpot, _seconds(slo.tpot_ms), allowed.tpot_ms),
        _clamped(override.e2e, _either(_seconds(slo.e2e_ms), scaled), allowed.e2e_ms),
    )


def flag_targets(targets: Targets) -> Target:
    """Return which targets are set, as a set of flags."""
    return _FLAGS[targets.ttft is not None, targets.tpot is not None, targets.e2e is not None]


def find_impossible(  # noqa: PLR0917
    targets: Targets,
    cost: CostModel,
    prompt_tokens: int,
    output_tokens: int,
    unloaded: tuple[float, float],
    tokens_per_step: float = 1.0,
) -> Target:
    """Return the targets that such a request would miss even alone on the engine, with `unloaded_times`."""
    first, last = unloaded
    missed_tpot = False
    if targets.tpot is not None and output_tokens > 1:
        mean = Batch(decodes=1, decode_context=prompt_tokens + output_tokens // 2)
        missed_tpot = cost.step_seconds(mean) > targets.tpot * tokens_per_step
    return flag_targets(
        Targets(
            ttft=targets.ttft if targets.ttft is not None and first > targets.ttft else None,
            tpot=targets.tpot if missed_tpot else None,
            e2e=targets.e2e if targets.e2e is not None and last > targets.e2e else None,
        )
    )


def _is_allowed(slo: Slo, kind: str) -> bool:
    """Tell whether a client may set this target: it needs a bound, the service's own if no other."""
    if slo.per_request is None:
        return False
    bounds = [getattr(slo.per_request, f"{kind}_ms"), getattr(slo, f"{kind}_ms")]
    if kind == "e2e":
        bounds.append(slo.e2e_scale_percent)
    return any(bound is not None for bound in bounds)


def _number(given: Any, most: float) -> float | None:
    """Read a number from 1 to `most`; None if `given` is none."""
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        return None
    try:
        value = float(given)
    except (ValueError, OverflowError):
        return None
    return value if 1 <= value <= most else None


def _clamped(override: float | None, own: float | None, tightest_ms: int | None) -> float | None:
    tightest = own if tightest_ms is None else tightest_ms / 1000
    if override is None or tightest is None:
        return own
    return max(override, tightest)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _either(left: float | None, right: float | None) -> float | None:
    return right if left is None else left
