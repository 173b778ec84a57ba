"""Requests that lost their KV are handed back by the real vLLM scheduler, those that ask for it."""

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, long_tailed

from headrace_engine.contracts import PolicyDocument, Slice
from headrace_engine.contracts.resume_arguments import HAND_BACK, HANDED_BACK
from headrace_engine.control.records import ErrorCode

pytestmark = MARKS

HANDS_BACK = PolicyDocument("FCFS", slice=Slice(64, hand_back=True))


def asking(requests, every=1):
    """Every so many of them ask to be handed back."""
    for request in requests[::every]:
        request.sampling_params.extra_args = {HAND_BACK: 1}
    return requests


class Sender:
    """Sends what an engine hands back to the same engine again, with what was delivered of it."""

    def __init__(self, trial):
        self.trial = trial
        self.handed_back = []
        self._update = trial.scheduler.update_from_output
        trial.scheduler.update_from_output = self.update_from_output

    def update_from_output(self, *args):
        known = dict(self.trial.scheduler.requests)
        results = self._update(*args)
        for of_client in results.values():
            back = [each for each in of_client.outputs if each.stop_reason == HANDED_BACK]
            of_client.outputs = [each for each in of_client.outputs if each not in back]
            for ended in back:
                assert (ended.finish_reason.name, ended.new_token_ids) == ("ABORT", [])
                self._send_again(known[ended.request_id])
        return results

    def _send_again(self, request):
        from headrace_engine.sim.vllm_objects import make_request

        assert request.request_id not in self.trial.scheduler.requests
        self.handed_back.append(request)
        again = make_request(
            request.request_id, request.num_prompt_tokens, request.max_tokens, request.arrival_time
        )
        again.sampling_params.extra_args = request.sampling_params.extra_args
        again.append_output_token_ids(list(request.output_token_ids))
        self.trial.scheduler.add_request(again)


@BASES
def test_who_asks_for_it_is_handed_back_and_can_go_on_elsewhere(asynchronous):
    trial = Trial(asynchronous, HANDS_BACK, blocks=300)
    sender = Sender(trial)
    trial.run(asking(long_tailed(), every=2))
    assert 0 < len(sender.handed_back) < trial.engine.preemptions
    assert all(int(request.request_id) % 2 == 0 for request in sender.handed_back)
    board = trial.link.board
    assert (board.fallback_steps, board.error_code) == (0, ErrorCode.NONE)


@BASES
@pytest.mark.parametrize("document", [PolicyDocument("FCFS", slice=Slice(64)), PolicyDocument("FCFS")])
def test_nobody_is_handed_back_unless_the_policy_says_so(asynchronous, document):
    trial = Trial(asynchronous, document, blocks=300)
    sender = Sender(trial)
    trial.run(asking(long_tailed(200)))
    assert trial.engine.preemptions > 0
    assert not sender.handed_back


def test_what_was_handed_back_counts_as_no_answer():
    requests = asking(long_tailed())
    for request in requests:
        request.sampling_params.stop = ["never"]  # its abort could otherwise be the end of the answer
    trial = Trial(True, HANDS_BACK, blocks=300)
    Sender(trial)
    trial.run(requests)
    assert len(trial.link.requests) == len(requests)


@BASES
def test_what_takes_most_of_all_kv_waits_for_its_turn(asynchronous):
    trial = Trial(asynchronous, HANDS_BACK, blocks=160)
    sender, preempted, schedule = Sender(trial), [], trial.scheduler.schedule

    def noting(*args):
        output = schedule(*args)
        preempted.extend(blocks(trial.scheduler.requests[name]) for name in output.preempted_req_ids or ())
        return output

    trial.scheduler.schedule = noting
    trial.run(asking(long_tailed(200)))
    assert max(map(blocks, sender.handed_back)) <= 80 < max(preempted)


def blocks(request):
    return -(-request.num_tokens // 16)
