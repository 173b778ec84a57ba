"""What the adapter tells of the engine, on the real vLLM scheduler and a virtual clock."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, load

from headrace_engine.contracts import PolicyDocument, Slo
from headrace_engine.contracts.resume_arguments import Resumption

pytestmark = MARKS


def test_only_an_abort_after_the_first_token_can_be_a_stop_string():
    from vllm.v1.request import RequestStatus

    trial = Trial(False, PolicyDocument("FCFS"))
    requests = dict(zip(("stopped", "left", "unstarted"), load(3, per_second=100_000), strict=True))
    requests["stopped"].sampling_params.stop = requests["unstarted"].sampling_params.stop = ["END"]
    for name, request in requests.items():
        if name != "unstarted":
            trial.scheduler.add_request(request)
    while not all(request.num_output_tokens for request in trial.scheduler.requests.values()):
        trial.engine.turn()
    last_token = trial.engine.clock.now
    trial.scheduler.add_request(requests["unstarted"])
    trial.engine.clock.now += 1
    trial.scheduler.finish_requests(list(trial.scheduler.requests), RequestStatus.FINISHED_ABORTED)
    (record,) = trial.link.requests
    assert record.prompt_tokens == requests["stopped"].num_prompt_tokens
    assert record.output_tokens == requests["stopped"].num_output_tokens
    assert record.time == last_token


def test_telling_that_fails_leaves_the_engine_alone():
    stock = Trial(False).run(load(20))
    trial = Trial(False, PolicyDocument("FCFS"))

    def full(record):
        raise OSError("no space left on device")

    link = type(trial.link)
    link.publish_board, publish = (lambda self, record: full(record)), link.publish_board
    try:
        assert trial.run(load(20)).course == stock.course
        assert trial.link.board is None
    finally:
        link.publish_board = publish


def test_the_parts_of_a_streamed_input_are_one_arrival():
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    def part(**extra):
        return make_request("streamed", 20, 1, START, **extra)

    trial = Trial(False, PolicyDocument("FCFS"))
    trial.scheduler.add_request(part(resumable=True))
    while not trial.scheduler.num_waiting_for_streaming_input:
        trial.engine.turn()
    trial.scheduler.add_request(part())  # not resumable: it closes the input
    assert not trial.scheduler.requests
    trial.scheduler.schedule()  # publishes
    assert (trial.link.board.arrivals, trial.link.board.finishes) == (1, 1)
    assert not trial.scheduler._telemetry._progress


def test_finished_requests_are_timed_and_held_against_their_targets():
    from headrace_engine.control.records import Target

    slo = Slo(ttft_ms=60_000, tpot_ms=1, e2e_ms=60_000)
    trial = Trial(False, PolicyDocument("LARRY", slo=slo))
    requests = load(40)
    trial.run(requests)
    told = {(r.prompt_tokens, r.output_tokens): r for r in trial.link.requests}
    for request in requests:
        record = told[request.num_prompt_tokens, request.max_tokens]
        end = trial.engine.finished[request.request_id]
        assert record.time == end
        assert record.e2e == pytest.approx(end - request.arrival_time)
        assert 0 <= record.queue_time <= record.ttft <= record.e2e
        assert record.tpot <= record.max_itl
        assert record.targets == Target.TTFT | Target.TPOT | Target.E2E
        assert record.met == Target.TTFT | Target.E2E
        assert record.itl_violations == record.output_tokens - 1


def test_a_request_that_was_under_way_elsewhere_counts_as_one_and_goes_ahead_of_new_ones():
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    trial = Trial(False, PolicyDocument("FCFS"))
    new, resumed, unstarted = (make_request(str(prompt), prompt, 30, START) for prompt in (10, 20, 30))
    resumed.append_output_token_ids([1] * 10)
    resumed.resumption = Resumption((1,) * 10, START - 60, START - 50, START - 7)
    unstarted.resumption = Resumption((), START - 60)
    for request in (resumed, unstarted):
        request.arrival_time = START - 60
    for request in (new, resumed, unstarted):
        trial.scheduler.add_request(request)
    assert list(trial.scheduler.waiting) == [unstarted, resumed, new]
    assert trial.scheduler._tracker.first_token(resumed) == (START - 50, 1)
    trial.engine.run([])
    told = {record.prompt_tokens: record for record in trial.link.requests}
    whole = told[20]
    assert whole.output_tokens == 30
    assert whole.ttft == whole.queue_time == pytest.approx(10)
    assert whole.e2e == pytest.approx(whole.time - START + 60)
    assert whole.tpot == pytest.approx((whole.time - START + 50) / 29)
    assert 7 < whole.max_itl < 8
    assert 60 < told[30].ttft < 61
    assert told[10].ttft < 1


def test_a_request_with_the_id_of_one_that_has_just_ended_is_another():
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    trial = Trial(False, PolicyDocument("FCFS"))
    trial.scheduler.add_request(make_request("same", 20, 3, START))
    trial.scheduler.add_request(make_request("other", 20, 30, START))
    while "same" in trial.scheduler.requests:
        trial.engine.turn()
    trial.scheduler.add_request(make_request("same", 40, 5, trial.engine.clock.now))
    trial.engine.run([])
    assert [(each.prompt_tokens, each.output_tokens) for each in trial.link.requests] == [
        (20, 3),
        (40, 5),
        (20, 30),
    ]


def test_that_a_step_begins_after_a_rest_is_told_before_it_is_computed():
    trial = Trial(False, PolicyDocument("FCFS"))
    [request] = load(1)
    trial.scheduler.add_request(request)
    assert trial.link.board.running == 0
    trial.scheduler.schedule()
    assert trial.link.board.running == 1


@BASES
def test_where_vllm_asks_for_no_bitmask_the_same_is_told(asynchronous):
    def told(*, bitmask):
        trial = Trial(asynchronous, PolicyDocument("LARRY"))
        if not bitmask:
            trial.scheduler.get_grammar_bitmask = lambda output: None
        trial.run(load(40, per_second=1000))
        return trial.link.requests, trial.link.steps, trial.link.board.preemptions

    assert told(bitmask=True) == told(bitmask=False)


@BASES
def test_step_samples_account_for_every_token_and_second(asynchronous):
    trial = Trial(asynchronous, PolicyDocument("FCFS"), blocks=4096)
    requests = load(40, per_second=1000)
    trial.run(requests)
    samples = trial.link.steps
    assert trial.link.board.preemptions == 0
    tokens = sum(sample.prefill_tokens + sample.decodes for sample in samples)
    assert tokens >= sum(request.num_prompt_tokens + request.max_tokens - 1 for request in requests)
    busy = max(trial.engine.finished.values()) - requests[0].arrival_time
    assert sum(sample.seconds for sample in samples) == pytest.approx(busy, rel=0.05)


def test_board_counts_what_waits():
    trial = Trial(False, PolicyDocument("LARRY"))
    requests = load(60, per_second=100_000)

    def look():
        board, waiting = trial.link.board, list(trial.scheduler.waiting)
        if trial.engine.steps % 10 == 1:
            trial.scheduler._tell(type(trial.scheduler._telemetry).record_schedule, EMPTY)
            board = trial.link.board
            assert board.waiting == len(waiting)
            assert board.waiting_prefill_tokens == sum(r.num_tokens for r in waiting)
            assert board.waiting_kv_blocks == sum(-(-r.num_tokens // 16) for r in waiting)
            assert board.running == len(trial.scheduler.running)
            assert board.free_kv_blocks == trial.pool.get_num_free_blocks()
            assert board.total_kv_blocks == trial.free_at_first

    class EMPTY:
        scheduled_new_reqs = ()
        preempted_req_ids = None
        total_num_scheduled_tokens = 0
        scheduled_cached_reqs = SimpleNamespace(req_ids=())

    trial.engine.before_step = look
    trial.run(requests)
    assert trial.link.board.arrived_tokens == sum(r.num_prompt_tokens for r in requests)


def test_the_board_is_written_every_ten_milliseconds_at_most_and_when_the_engine_comes_to_rest(monkeypatch):
    from headrace_engine.adapter.telemetry import BOARD_SECONDS
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    trial, written = Trial(False, PolicyDocument("FCFS")), []
    monkeypatch.setattr(type(trial.link), "publish_board", lambda _, record: written.append(record))
    trial.engine.run([make_request(str(number), 20, 30, START) for number in range(4)])
    *under_way, rest = written
    assert (rest.running, rest.waiting, rest.finishes) == (0, 0, 4)
    assert rest.step == trial.scheduler.current_step
    times = [record.time for record in under_way]
    assert all(after - before >= BOARD_SECONDS for before, after in pairwise(times))
    assert len(times) < trial.engine.steps - 1
    trial.engine.run([make_request("next", 20, 1, trial.link.clock())])
    assert written[len(under_way) + 1].running == 1  # whoever hangs in its first step shows that it runs


def test_who_finished_is_told_while_the_device_computes_the_next_step():
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    trial = Trial(False, PolicyDocument("FCFS"))
    for number, output in enumerate((3, 9)):
        trial.scheduler.add_request(make_request(str(number), 20, output, START))
    while not trial.engine.finished:
        trial.engine.turn()
    assert not trial.link.requests
    output = trial.scheduler.schedule()
    assert not trial.link.requests
    trial.scheduler.get_grammar_bitmask(output)
    (record,) = trial.link.requests
    assert (record.output_tokens, record.time) == (3, trial.engine.finished["0"])


def test_samples_go_out_with_the_board_and_all_of_them():
    trial = Trial(False, PolicyDocument("FCFS"))
    for request in load(5, per_second=100_000):
        trial.scheduler.add_request(request)
    while trial.scheduler.has_requests():
        board, told = trial.link.board, len(trial.link.steps)
        trial.engine.turn()
        assert len(trial.link.steps) == told or trial.link.board is not board
    assert len(trial.link.steps) == trial.engine.steps - 1  # the last step is empty
