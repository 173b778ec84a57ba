"""What the adapter finds in vLLM's prefix cache, against what vLLM itself finds when it starts a request."""

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, layered, sharing

from headrace_engine.contracts import PolicyDocument, Slo
from headrace_engine.control.records import ErrorCode
from headrace_engine.policies import registry
from headrace_engine.sim.form import Form

pytestmark = MARKS

FCFS = PolicyDocument("FCFS")
SLO = Slo(ttft_ms=800, tpot_ms=20, e2e_ms=8000)
FORMS = {name: PolicyDocument(name, slo=SLO) for name in registry.policy_names()}
FORMS["EconoServe as published"] = Form(FORMS["EconoServe"], {"variant": "Full"})
KINDS = pytest.mark.parametrize(
    "kinds",
    [(), ("full", "window"), ("full", "full"), ("window",)],
    ids=["plain", "and window", "two", "window"],
)


def as_vllm_sees_it(manager, request):
    """Cached tokens, and blocks that others hold in layers that keep all tokens."""
    blocks, tokens, *_ = manager.coordinator.find_longest_cache_hit(
        request.block_hashes, request.num_tokens - 1
    )
    whole = [
        i
        for i, each in enumerate(manager.coordinator.single_type_managers)
        if not each.get_num_skipped_tokens(10**6)
    ]
    return tokens, sum(block.ref_cnt > 0 for i in whole for block in blocks[i])


def cached_trial(kinds, monkeypatch, document=FCFS, *, asynchronous=False):
    if kinds:
        return layered(monkeypatch, asynchronous, document, *kinds, blocks=400, caching=True)
    return Trial(asynchronous, document, caching=True)


@KINDS
def test_finds_what_vllm_finds(kinds, monkeypatch):
    from headrace_engine.adapter import prefix_cache

    monkeypatch.setattr(prefix_cache, "BLOCK_BY_BLOCK", 1000)
    trial = cached_trial(kinds, monkeypatch)
    manager, cache = trial.scheduler.kv_cache_manager, trial.scheduler._prefix_cache
    found = []

    def compare():
        cache.begin_step()
        for request in trial.scheduler.waiting:
            seen = cache.cached_tokens(request), cache.shared_blocks(request)
            assert seen == as_vllm_sees_it(manager, request)
            found.append(seen)

    trial.engine.before_step = compare
    trial.run(sharing(120, 40.0))
    assert any(shared for _, shared in found) == (kinds != ("window",))
    assert any(tokens and not shared for tokens, shared in found)


def test_a_running_request_shares_what_others_hold_too():
    trial = Trial(False, FCFS, caching=True)
    cache, manager = trial.scheduler._prefix_cache, trial.scheduler.kv_cache_manager
    most = 0

    def compare():
        nonlocal most
        for request in trial.scheduler.running:
            shared = sum(block.ref_cnt > 1 for block in manager.get_blocks(request.request_id).blocks[0])
            assert cache.shared_blocks(request) == shared
            most = max(most, shared)

    trial.engine.before_step = compare
    trial.run(sharing(120, 40.0))
    assert most > 10


@BASES
@KINDS
def test_looking_changes_nothing(asynchronous, kinds, monkeypatch):
    """Neither what is evicted next, nor what counts as a hit: the same steps with and without looks."""
    looked = cached_trial(kinds, monkeypatch, asynchronous=asynchronous)

    def look():
        for request in (*looked.scheduler.waiting, *looked.scheduler.running):
            looked.scheduler._prefix_cache.cached_tokens(request)
            looked.scheduler._prefix_cache.shared_blocks(request)

    looked.engine.before_step = look
    plain = cached_trial(kinds, monkeypatch, asynchronous=asynchronous)
    assert looked.run(sharing()).course == plain.run(sharing()).course


def test_without_prefix_caching_nothing_is_looked_up(monkeypatch):
    trial = Trial(False, PolicyDocument("EconoServe", slo=SLO))
    monkeypatch.setattr(trial.pool, "get_cached_block", None)
    monkeypatch.setattr(trial.scheduler.kv_cache_manager.coordinator, "find_longest_cache_hit", None)
    cache = trial.scheduler._prefix_cache
    (request,) = sharing(1)
    assert (cache.cached_tokens(request), cache.shared_blocks(request)) == (0, 0)


def test_who_may_not_read_the_cache_has_nothing_there():
    """As with prompt logprobs: vLLM computes the prompt anew."""
    trial = Trial(False, FCFS, caching=True)
    first, second = sharing(2)
    second._block_hasher = first._block_hasher
    second.block_hashes = list(first.block_hashes)
    trial.scheduler.add_request(first)
    trial.engine.turn()
    cache = trial.scheduler._prefix_cache
    assert cache.cached_tokens(second) > 0
    assert cache.shared_blocks(second) > 0
    second.skip_reading_prefix_cache = True
    assert (cache.cached_tokens(second), cache.shared_blocks(second)) == (0, 0)


def test_looks_at_caches_of_several_groups_are_few_in_a_step(monkeypatch):
    trial = layered(monkeypatch, False, FCFS, "full", "window", caching=True)
    coordinator, cache = trial.scheduler.kv_cache_manager.coordinator, trial.scheduler._prefix_cache
    looks, look = [], coordinator.find_longest_cache_hit
    monkeypatch.setattr(
        coordinator, "find_longest_cache_hit", lambda *details: looks.append(1) or look(*details)
    )
    requests = sharing(50)
    cache.begin_step()
    for request in requests * 2:
        cache.cached_tokens(request)
        cache.shared_blocks(request)
    assert len(looks) == 4


@BASES
@KINDS
@pytest.mark.parametrize("policy", FORMS.values(), ids=FORMS)
def test_every_policy_serves_everyone(asynchronous, kinds, policy, monkeypatch):
    trial = cached_trial(kinds, monkeypatch, policy, asynchronous=asynchronous)
    trial.run(sharing(60, 40.0))
    assert trial.link.board.fallback_steps == 0
    assert trial.link.board.error_code == ErrorCode.NONE
    assert not trial.scheduler._prefix_cache._found  # or who left would be kept for ever


@pytest.mark.parametrize("policy", registry.policy_names())
def test_prompts_that_share_nothing_are_served_as_without_a_cache(policy):
    """Unless someone is preempted, who finds the KV that it had."""
    document = PolicyDocument(policy)
    without, cached = (Trial(False, document, blocks=2000, caching=each) for each in (False, True))
    requests = sharing(alone=True), sharing(alone=True)
    assert cached.run(requests[0]).course == without.run(requests[1]).course
    assert without.engine.preemptions == 0
