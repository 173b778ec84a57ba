"""What requests may bring along, on the real scheduler under every policy: nobody lost, nothing leaked.

LoRA adapters with fewer places than names, grammars that take a while to compile, hints that are wrong by ten
times, a single token of output, and clients that leave at any time.
"""

import random
from types import SimpleNamespace

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, layered

from headrace_engine.contracts import PerRequest, PolicyDocument, Slo
from headrace_engine.control.layout import SlotWriter
from headrace_engine.control.records import BOARD, ErrorCode
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.plan import RunningLimits
from headrace_engine.sim.form import Form

pytestmark = MARKS

SLO = Slo(ttft_ms=800, tpot_ms=20, e2e_ms=8000, per_request=PerRequest(ttft_ms=1, tpot_ms=1, e2e_ms=1))
DOCUMENTS = {
    "FCFS": PolicyDocument("FCFS", slo=SLO),
    "LARRY": PolicyDocument("LARRY", slo=SLO),
    "EconoServe": PolicyDocument("EconoServe", slo=SLO),
    "EconoServe as published": Form(
        PolicyDocument("EconoServe", {"paddingPercent": 15}, slo=SLO),
        {"variant": "Full", "order": "ThreeKeys"},
    ),
    "AccelGen": PolicyDocument("AccelGen", slo=SLO),
    "DoublingBudget": PolicyDocument("DoublingBudget", slo=SLO),
}
POLICIES = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
COMPILING = 12  # steps until a grammar is there


def lora(number):
    from vllm.lora.request import LoRARequest

    return LoRARequest(f"adapter-{number}", number, "/nowhere") if number else None


def awkward(count=60, seed=5):
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    rng, at, requests = random.Random(seed), START, []
    for number in range(count):
        at += rng.expovariate(20)
        prompt, output = rng.choice((1, 16, 100, 400, 900)), rng.choice((1, 2, 40, 190))
        request = make_request(str(number), prompt, output, at, lora_request=lora(rng.randrange(4)))
        hint = rng.choice((None, max(1, output // 10), 10 * output))
        if hint is not None:
            request.sampling_params.extra_args = {"headrace_output_tokens": hint}
        requests.append(request)
    return requests


class Grammars:
    """Some requests wait for theirs, as vLLM has them wait; call it before each step."""

    def __init__(self, requests, every=3):
        from vllm.v1.request import RequestStatus

        self.waiting = dict.fromkeys(requests[::every], COMPILING)
        self.ready = RequestStatus.WAITING
        for request in self.waiting:
            request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
            request.structured_output_request = SimpleNamespace(grammar=None)

    def __call__(self, known):
        for request in [each for each in self.waiting if each.request_id in known]:
            self.waiting[request] -= 1
            if not self.waiting[request]:
                del self.waiting[request]
                request.status, request.structured_output_request = self.ready, None


@BASES
@POLICIES
def test_adapters_grammars_and_wrong_hints(asynchronous, document):
    trial, requests = Trial(asynchronous, document), awkward()
    trial.scheduler.lora_config = SimpleNamespace(max_loras=1)
    grammars = Grammars(requests)
    trial.engine.before_step = lambda: grammars(trial.scheduler.requests)
    trial.run(requests)
    assert not grammars.waiting
    assert trial.link.board.fallback_steps == 0
    assert trial.link.board.error_code == ErrorCode.NONE


@BASES
@POLICIES
def test_clients_that_leave_at_any_time(asynchronous, document):
    from vllm.v1.request import RequestStatus

    trial, requests = Trial(asynchronous, document), awkward(seed=6)
    rng, gone = random.Random(0), set()

    def leave():
        if trial.engine.steps % 4 == 0 and trial.scheduler.requests:
            name = rng.choice(list(trial.scheduler.requests))
            trial.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            gone.add(name)

    trial.engine.before_step = leave
    trial.engine.run(requests)
    assert gone
    assert set(trial.engine.finished) == {request.request_id for request in requests} - gone
    assert trial.pool.get_num_free_blocks() == trial.free_at_first
    assert len(trial.scheduler.waiting) == 0
    board = trial.link.board
    assert (board.waiting, board.waiting_prefill_tokens, board.waiting_kv_blocks) == (0, 0, 0)
    assert board.finishes == board.arrivals == len(requests)
    assert len(trial.link.requests) == len(requests) - len(gone)
    assert (board.fallback_steps, board.error_code) == (0, ErrorCode.NONE)


@POLICIES
def test_a_cache_that_hardly_holds_one_prompt(document):
    trial = Trial(False, document, blocks=70).run(awkward(24))  # of 16 tokens
    assert trial.link.board.fallback_steps == 0


class Ageless:
    """FCFS that counts how often it hears of each request."""

    def __init__(self):
        self.queue, self.joined, self.left = [], [], []

    def add(self, request):
        self.queue.append(request)
        self.joined.append(request.request_id)

    def discard(self, request):
        self.queue.remove(request)
        self.left.append(request.request_id)

    def ranked(self, _view):
        yield from list(self.queue)


def test_who_is_put_back_has_waited_all_along():
    order, requests = Ageless(), awkward(20)
    for request in requests:
        request.lora_request = None
    trial = Trial(False, DOCUMENTS["FCFS"], blocks=4096)
    trial.force(lambda: Policy(order))
    grammars = Grammars(requests, every=1)
    trial.engine.before_step = lambda: grammars(trial.scheduler.requests)
    trial.run(requests)
    assert sorted(order.joined) == sorted(order.left) == sorted(each.request_id for each in requests)


def test_who_has_an_adapter_is_not_hidden():
    """Else its place goes to another adapter, and vLLM stops when both run."""
    requests = awkward(30)
    trial = Trial(False, DOCUMENTS["FCFS"])
    trial.scheduler.lora_config = SimpleNamespace(max_loras=1)

    def skip_half(view):
        return RunningLimits(None, view.running[::2]) if len(view.running) > 1 else RunningLimits()

    trial.force(lambda: Policy(limiter=skip_half))
    trial.run(requests)
    assert trial.link.board.fallback_steps == 0


@BASES
@POLICIES
def test_a_sliding_window_is_charged_as_what_it_keeps(document, asynchronous, monkeypatch):
    from headrace_engine.adapter.scheduler_view import read_limits

    trial = layered(monkeypatch, asynchronous, document, "full", "window")
    limits = read_limits(trial.scheduler)
    most = -(-(128 - 1 + 512 * (2 if asynchronous else 1)) // 16) + 1  # the window, and the tokens in flight
    assert (limits.block_size, limits.kv_groups, limits.other_groups) == (16, 1, ((16, most),))
    assert limits.blocks(64) == 4 + 4
    assert limits.blocks(1600) == 100 + most < 200
    trial.run(awkward(30))
    assert trial.link.board.error_code == ErrorCode.NONE
    assert trial.link.board.block_size == 7  # tokens in each of 2 x 18 blocks, for a mean prompt of 283


@BASES
@POLICIES
def test_a_state_is_charged_as_what_it_keeps(document, asynchronous, monkeypatch):
    from headrace_engine.adapter.scheduler_view import read_limits

    trial = layered(monkeypatch, asynchronous, document, "full", "state", "state")
    limits = read_limits(trial.scheduler)
    assert (limits.block_size, limits.kv_groups, limits.other_groups) == (16, 1, ((16, 2), (16, 2)))
    assert limits.blocks(1600) == 100 + 2 + 2


@POLICIES
def test_an_encoder_that_keeps_nothing_never_waits_for_room(document, monkeypatch):
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    trial = layered(monkeypatch, False, document, blocks=1)
    for number in range(40):
        trial.scheduler.add_request(make_request(str(number), 16, 1, START))
    trial.scheduler.schedule()
    board = trial.link.board
    assert (board.running, board.waiting) == (32, 8)  # the step is full
    SlotWriter(BOARD).write(
        memoryview(bytearray(BOARD.slot.size)), 1, board
    )  # else the engine would run stock
    assert board.free_kv_blocks == board.total_kv_blocks > board.waiting_kv_blocks
    assert board.error_code == ErrorCode.NONE
