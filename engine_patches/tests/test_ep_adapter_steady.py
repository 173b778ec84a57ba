"""Mostly a step only goes on with the last; what is told of it is what a look at each request finds.

Requests come in bursts, decode for long, leave at any time and are preempted.
"""

import random
from itertools import pairwise

import pytest
from ep_adapter_trial import BASES, MARKS, Trial

from headrace_engine.contracts import PolicyDocument, Slo
from headrace_engine.control.records import StepSample
from headrace_engine.cost.fit import StepFit

pytestmark = MARKS

TPOT = 0.015


class Witness:
    """Looks at every request of every step, before and after the scheduler takes the step's tokens in."""

    def __init__(self, trial):
        self.trial, self.samples, self.times = trial, [], {}
        self.planned, self.delivered = {}, 0.0
        self.last, self.steady = [], 0
        schedule, update = trial.scheduler.schedule, trial.scheduler.update_from_output

        def planned():
            now = trial.engine.clock.now
            output = schedule()
            self.planned[id(output)] = output, now
            return output

        def delivered(output, result):
            now = trial.engine.clock.now
            _, began = self.planned.pop(id(output))
            if output.num_scheduled_tokens:
                self.samples.append(count(output, now - max(began, self.delivered)))
            self.delivered = now
            results = update(output, result)
            told = [item for each in results.values() for item in each.outputs if item.new_token_ids]
            for item in told:
                self.times.setdefault(item.request_id, []).append(now)
            names = [item.request_id for item in told]
            self.steady += bool(names) and names == self.last
            self.last = names
            return results

        trial.scheduler.schedule, trial.scheduler.update_from_output = planned, delivered


def count(output, seconds):
    cached = output.scheduled_cached_reqs
    contexts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    contexts |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    tokens = work = decodes = context = 0
    for name, chunk in output.num_scheduled_tokens.items():
        if chunk == 1:
            decodes, context = decodes + 1, context + contexts[name]
        else:
            tokens, work = tokens + chunk, work + chunk * contexts[name] + chunk * (chunk + 1) // 2
    return StepSample(tokens, work, decodes, context, seconds)


def bursts(dice):
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    at, requests = START, []
    for number in range(40):  # each has another prompt, by which its record is found
        at += dice.choice((0.0, 0.0, 0.01, 0.3))
        requests.append(make_request(str(number), 5 + 3 * number, dice.choice((1, 2, 30, 200, 250)), at))
    return requests


@BASES
@pytest.mark.parametrize("policy", ["FCFS", "LARRY"])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_told_of_steps_is_what_a_look_at_each_request_finds(asynchronous, policy, seed):
    from vllm.v1.request import RequestStatus

    dice = random.Random(seed)
    trial = Trial(asynchronous, PolicyDocument(policy, slo=Slo(tpot_ms=1000 * TPOT)), blocks=48)
    trial.engine.cost = lambda _: dice.choice((0.01, 0.01, 0.02, 0.005 + 0.01 * dice.random()))
    witness, requests, gone = Witness(trial), bursts(dice), set()

    def some_leave():
        if dice.random() < 0.01 and trial.scheduler.requests:
            name = dice.choice(list(trial.scheduler.requests))
            gone.add(name)
            trial.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    trial.engine.before_step = some_leave
    trial.engine.run(requests)
    trial.scheduler.schedule()  # publishes

    assert gone
    assert trial.engine.preemptions
    assert witness.steady > trial.engine.steps / 3
    assert trial.link.steps == witness.samples
    fit = StepFit()
    for sample in witness.samples:
        fit.add(sample)
    assert trial.scheduler._step_timer.cost == fit.latest
    told = {record.prompt_tokens: record for record in trial.link.requests}
    assert len(told) == len(requests) - len(gone)
    for request in requests:
        if request.request_id not in gone:
            record, times = told[request.num_prompt_tokens], witness.times[request.request_id]
            gaps = [after - before for before, after in pairwise(times)]
            assert record.output_tokens == len(times) == request.max_tokens
            assert record.ttft == times[0] - request.arrival_time
            assert record.max_itl == max(gaps, default=0.0)
            assert record.itl_violations == sum(gap > TPOT for gap in gaps)
            assert record.tpot == ((times[-1] - times[0]) / len(gaps) if gaps else 0.0)
    board = trial.link.board
    assert (board.arrivals, board.finishes, board.preemptions) == (
        len(requests),
        len(requests),
        trial.engine.preemptions,
    )
