"""LARRY on the real vLLM scheduler, its KV cache too small for the load."""

from ep_adapter_trial import BASES, MARKS, Trial, load

from headrace_engine.contracts import PolicyDocument

pytestmark = MARKS


@BASES
def test_a_stream_that_lost_its_kv_soon_goes_on(asynchronous):
    """Others wait for up to 25 s meanwhile; by its score it would wait behind all that is shorter."""
    trial = Trial(asynchronous, PolicyDocument("LARRY", {"alpha": 0}), blocks=200).run(load(200, 40))
    gaps = [record.max_itl for record in trial.link.requests if record.preemptions]
    assert len(gaps) > 10
    assert max(record.ttft for record in trial.link.requests) > 5
    assert max(gaps) < 1
    assert trial.link.board.fallback_steps == 0


@BASES
def test_when_the_first_token_came_is_known_for_life(asynchronous):
    trial, known = Trial(asynchronous, PolicyDocument("LARRY")), {}

    def look():
        view = trial.scheduler._step._view
        for request in trial.scheduler.requests.values():
            told = view.first_token(request)
            assert (told is not None) == bool(request.num_output_tokens)
            if told is not None:
                assert known.setdefault(request.request_id, told) == told

    trial.engine.before_step = look
    trial.run(load(40))
    assert trial.engine.preemptions > 0
    assert len(known) == 40
