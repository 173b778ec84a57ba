"""Loads of a KV connector on the real vLLM scheduler: who holds KV without running is in the plans.

The connector's scheduler side is vLLM's own interface; its worker side needs a device,
and here only takes time.
"""

import random

import pytest
from ep_adapter_trial import BASES, MARKS, Trial
from test_ep_adapter_awkward import POLICIES

from headrace_engine.contracts import PerRequest, PolicyDocument, Slo
from headrace_engine.control.records import ErrorCode
from headrace_engine.sim.form import Form

pytestmark = MARKS
HINTED = Slo(per_request=PerRequest())


def load(count=40, seed=7):
    """Every other request has its prompt's KV elsewhere."""
    from ep_kv_connector import remote

    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    rng, at, requests = random.Random(seed), START, []
    for number in range(count):
        at += rng.expovariate(20)
        request = make_request(str(number), rng.choice((20, 300, 700)), rng.choice((1, 40, 190)), at)
        requests.append(remote(request) if number % 2 else request)
    return requests


def connected_trial(monkeypatch, asynchronous, document, blocks=256, **transfers):
    from ep_kv_connector import Transfers, connected

    connected(monkeypatch)
    trial = Trial(asynchronous, document, blocks=blocks)

    def not_for_ever():
        assert trial.engine.steps < 20_000

    trial.engine.before_step = not_for_ever
    return trial, Transfers(trial.scheduler, **transfers)


@BASES
@POLICIES
def test_loads_that_end_and_fail(monkeypatch, asynchronous, document):
    trial, transfers = connected_trial(monkeypatch, asynchronous, document, failing={"3", "9", "27"})
    trial.run(load())
    assert transfers.done == 20
    assert transfers.most > 1
    assert (trial.link.board.fallback_steps, trial.link.board.error_code) == (0, ErrorCode.NONE)


@BASES
@POLICIES
def test_clients_that_leave_while_their_kv_is_loaded(monkeypatch, asynchronous, document):
    from vllm.v1.request import RequestStatus

    trial, _ = connected_trial(monkeypatch, asynchronous, document)
    rng, gone = random.Random(0), set()

    def leave():
        if trial.engine.steps % 9 == 0 and (names := list(trial.scheduler.requests)):
            name = rng.choice(names)
            if not trial.scheduler.requests[name].is_finished():
                trial.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
                gone.add(name)

    trial.engine.before_step = leave
    trial.engine.run(load())
    assert gone
    assert set(trial.engine.finished) == {str(number) for number in range(40)} - gone
    assert trial.pool.get_num_free_blocks() == trial.free_at_first
    assert (trial.link.board.fallback_steps, trial.link.board.error_code) == (0, ErrorCode.NONE)


@BASES
@pytest.mark.parametrize("variant", ["General", "SDO"])
def test_what_is_loaded_counts_as_what_it_will_hold(monkeypatch, asynchronous, variant):
    """Ten times 400 tokens fit, but not with the 400 more that each produces: those behind have to wait."""
    from ep_kv_connector import remote

    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    requests = []
    for number in range(16):
        request = remote(make_request(str(number), 400, 400, START + number / 100))
        request.sampling_params.extra_args = {"headrace_output_tokens": 400}
        requests.append(request)
    document = PolicyDocument("EconoServe", {"patience": 0}, slo=HINTED)
    form = Form(document, {"variant": variant})
    trial, transfers = connected_trial(monkeypatch, asynchronous, form)
    trial.run(requests)
    assert transfers.done == 16
    assert transfers.most > 1
    assert trial.engine.preemptions <= 1  # how long a load takes is not known beforehand; 6 to 8 if unseen
    assert trial.link.board.fallback_steps == 0
