"""What a request shall meet: service, client, and what the service allows the client."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.adapter.targets import (
    KINDS,
    NO_OVERRIDES,
    find_impossible,
    flag_targets,
    read_overrides,
    resolve_targets,
)
from headrace_engine.contracts import PerRequest, Slo
from headrace_engine.contracts.request_overrides import OVERRIDES
from headrace_engine.control.records import Target
from headrace_engine.cost.forms import Linear
from headrace_engine.cost.model import unloaded_times
from headrace_engine.policies.engine_view import NO_TARGETS, Targets

OPEN = Slo(ttft_ms=500, e2e_scale_percent=200, per_request=PerRequest(tpot_ms=20))
COST = Linear(None, fixed=0.005, per_prefill=1e-5, per_decode=1e-4)


def test_the_services_targets_apply_to_who_asks_for_nothing():
    slo = Slo(ttft_ms=500, tpot_ms=50, e2e_ms=9000)
    assert resolve_targets(slo, NO_TARGETS, None) == Targets(0.5, 0.05, 9.0)
    assert resolve_targets(Slo(), NO_TARGETS, 3.0) == NO_TARGETS


def test_what_a_client_may_override_is_each_target_and_the_length():
    targets = [each.name for each in fields(PerRequest)]
    assert targets == [f"{kind}_ms" for kind in KINDS]
    assert [*targets, "output_tokens"] == list(OVERRIDES)


def test_a_scale_is_of_the_unloaded_time():
    assert resolve_targets(Slo(e2e_scale_percent=250), NO_TARGETS, 2.0) == Targets(e2e=5.0)
    assert resolve_targets(Slo(e2e_scale_percent=250), NO_TARGETS, None) == NO_TARGETS


@pytest.mark.parametrize(
    ("override", "found"),
    [
        (Targets(ttft=2.0), Targets(2.0, None, 6.0)),  # looser than the service's
        (Targets(ttft=0.1), Targets(0.5, None, 6.0)),  # tighter: the service's own is the tightest
        (Targets(tpot=0.05), Targets(0.5, 0.05, 6.0)),
        (Targets(tpot=0.001), Targets(0.5, 0.02, 6.0)),  # the tightest that is allowed
        (Targets(e2e=1.0), Targets(0.5, None, 6.0)),
        (Targets(e2e=60.0), Targets(0.5, None, 60.0)),
    ],
)
def test_an_override_counts_up_to_the_tightest_allowed(override, found):
    assert resolve_targets(OPEN, override, 3.0) == found


def test_overrides_are_read_from_what_clients_send():
    given = {"headrace_ttft_ms": 250, "headrace_tpot_ms": "40", "headrace_e2e_ms": 1500.5, "top": 3}
    overrides = read_overrides("r", given | {"headrace_output_tokens": "80"}, OPEN)
    assert overrides.targets == Targets(0.25, 0.04, 1.5005)
    assert (overrides.output_tokens, overrides.ignored) == (80, 0)


@pytest.mark.parametrize(
    "value", ["soon", "", "nan", "inf", "-5", 0, -1, 1e300, 10**400, True, [100], {}, "0x10"]
)
def test_a_bad_override_is_left_out_and_counted(value):
    for key in ("headrace_ttft_ms", "headrace_output_tokens"):
        overrides = read_overrides("r", {key: value}, OPEN)
        assert (overrides.targets, overrides.output_tokens, overrides.ignored) == (NO_TARGETS, None, 1)


def test_overrides_need_the_services_leave():
    every = {f"headrace_{key}": 100 for key in ("ttft_ms", "tpot_ms", "e2e_ms", "output_tokens")}
    assert read_overrides("r", every, Slo(ttft_ms=500)).ignored == 4
    unbounded = read_overrides("r", every, Slo(per_request=PerRequest()))
    assert (unbounded.targets, unbounded.output_tokens, unbounded.ignored) == (NO_TARGETS, 100, 3)
    assert read_overrides("r", None, OPEN) is read_overrides("r", {"other": 1}, OPEN) is NO_OVERRIDES


@pytest.mark.parametrize(
    "request_id",
    [
        "chatcmpl-7f3a~headrace~250~~~80~-1a2b3c4d",
        "cmpl-7f3a~headrace~250~~~80~-0-1a2b3c4d",
        "1_chatcmpl-7f3a~headrace~250~~~80~-1a2b3c4d",
    ],
)
def test_the_gateways_overrides_are_in_the_requests_id(request_id):
    overrides = read_overrides(request_id, {"headrace_tpot_ms": 70}, OPEN)
    assert (overrides.targets, overrides.output_tokens) == (Targets(0.25, 0.07), 80)
    assert read_overrides(request_id, {"headrace_ttft_ms": 900}, OPEN).targets == Targets(0.9)


@pytest.mark.parametrize("mark", ["~headrace~", "~headrace~1~2~", "~headrace~~~~~", "~headrace~x~y~z~w~"])
def test_an_id_that_says_nothing_usable_is_no_override(mark):
    overrides = read_overrides(f"chatcmpl-1{mark}", None, OPEN)
    assert (overrides.targets, overrides.output_tokens) == (NO_TARGETS, None)


ms = st.none() | st.integers(1, 10**6)
wanted = st.none() | st.floats(0.001, 1000)


@given(ms, ms, st.builds(PerRequest, ms, ms, ms), st.builds(Targets, wanted, wanted, wanted))
def test_no_override_is_tighter_than_allowed(ttft, e2e, per_request, override):
    slo = Slo(ttft_ms=ttft, e2e_ms=e2e, per_request=per_request)
    found = resolve_targets(slo, override, None)
    for kind in ("ttft", "tpot", "e2e"):
        target, own = getattr(found, kind), getattr(slo, f"{kind}_ms")
        tightest = getattr(per_request, f"{kind}_ms") or own
        if tightest is None:
            assert target is None
        elif getattr(override, kind) is not None:
            assert target >= tightest / 1000
        else:
            assert target == (None if own is None else own / 1000)


def test_targets_that_no_engine_could_meet_are_told():
    times = unloaded_times(COST, 1000, 50, 2048, 1.0)
    tight = Targets(ttft=0.01, tpot=0.005, e2e=times[1] * 0.99)
    assert (
        find_impossible(tight, COST, 1000, 50, times)
        == flag_targets(tight)
        == Target.TTFT | Target.TPOT | Target.E2E
    )
    assert find_impossible(Targets(0.02, 0.0052, times[1] * 1.01), COST, 1000, 50, times) == Target(0)
    assert find_impossible(tight, COST, 10, 1, unloaded_times(COST, 10, 1, 2048, 1.0)) == Target(0)
