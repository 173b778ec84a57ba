"""EconoServe on an engine in plain Python: nobody stands still or is lost, whatever is predicted."""

import dataclasses
from functools import partial

from ep_engine_view import LIMITS
from ep_pure_engine import PureEngine, PureRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.contracts import PolicyDocument
from headrace_engine.policies import registry
from headrace_engine.policies.econoserve.peak import FuturePeak
from headrace_engine.policies.engine_view import Targets
from headrace_engine.sim.form import Form

SMALL = dataclasses.replace(LIMITS, total_blocks=40, max_step_tokens=96, max_running=12)
ROOM = SMALL.total_blocks * SMALL.block_size

parameters = st.fixed_dictionaries(
    {
        "paddingPercent": st.sampled_from([0, 15, 300]),
        "underPercent": st.sampled_from([0, 20]),
        "reservedPercent": st.sampled_from([0, 3, 50]),
        "patience": st.sampled_from([0, 50, 130]),
    }
)
methods = st.fixed_dictionaries(
    {
        "variant": st.sampled_from(["General", "Full", "SDO", "SD", "D"]),
        "order": st.sampled_from(["Footprint", "ThreeKeys"]),
    }
)


@st.composite
def requests(draw):
    """Up to the whole cache, down to one token; predictions up to ten times off."""
    prompt = draw(st.integers(1, ROOM - 1))
    output = draw(st.one_of(st.just(1), st.integers(1, min(200, ROOM - prompt))))
    return PureRequest(
        request_id=str(draw(st.integers())),
        arrival_time=0.0,
        num_tokens=prompt,
        max_tokens=draw(st.integers(output, ROOM - prompt)),
        output=output,
        predicted=output * draw(st.sampled_from([0.1, 0.5, 1.0, 1.0, 3.0, 10.0])),
    )


@st.composite
def workloads(draw):
    """Requests with the step at which they arrive, and the step at which the client leaves, if it does."""
    return draw(
        st.lists(
            st.tuples(requests(), st.integers(0, 60), st.one_of(st.none(), st.integers(1, 120))),
            min_size=1,
            max_size=14,
        )
    )


def serve(build, workload, limits=SMALL, e2e=None):
    """Run to the end; every step must get somebody on, and no step may have failed."""
    targets = {request.request_id: Targets(ttft=e2e, e2e=e2e) for request, _, _ in workload}
    engine = PureEngine(limits, lambda: build(limits), targets)
    arrivals = sorted(workload, key=lambda each: each[1])
    aborts = sorted((each for each in workload if each[2] is not None), key=lambda each: each[2])
    aborted = set()
    while arrivals or engine.queue or engine.running:
        while aborts and aborts[0][2] <= engine.steps:
            request = aborts.pop(0)[0]
            aborted.add(request)
            engine.abort(request)
        while arrivals and (arrivals[0][1] <= engine.steps or not (engine.queue or engine.running)):
            request = arrivals.pop(0)[0]
            if request not in aborted:
                request.arrival_time = engine.now
                engine.add(request)
        busy = bool(engine.queue or engine.running)
        assert engine.step() or not busy, "a step in which nobody got on"
        assert engine.steps < 100_000
    assert engine.guard.fallback_steps == 0
    assert engine.free_blocks == limits.total_blocks
    assert {*engine.finished, *aborted} == {request for request, _, _ in workload}
    return engine


def all_returned(policy, limits):
    """Whether the books of a policy without requests are as they were at first."""
    form = policy.admission.__self__
    if isinstance(form, FuturePeak):
        return not form._entries and not form._sorted
    ledger = form.ledger
    return not ledger.tasks and ledger.free + ledger.reserve == limits.total_blocks and ledger.free >= 0


@settings(max_examples=25)
@given(workloads(), parameters, st.none() | methods, st.sampled_from([None, 0.5, 5.0]))
def test_every_step_gets_somebody_on_and_nothing_is_lost_or_leaks(workload, parameters, methods, e2e):
    document = PolicyDocument("EconoServe", parameters)
    build = partial(registry.build_policy, document) if methods is None else Form(document, methods).build
    engine = serve(build, workload, e2e=e2e)
    policy = engine.guard._policy
    policy.plan(engine)
    assert all_returned(policy, SMALL)
    policy.add(probe := PureRequest("probe", 0.0, 16))
    assert list(policy.order.ranked(engine)) == [probe]
