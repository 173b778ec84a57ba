"""What counts as known to every Envoy: what each took last, not what it was sent."""

from headrace_engine.contracts import GatewayConfig, PerRequest, Slo
from headrace_gateway.catalog import Catalog, Engine, Service
from headrace_gateway.xds.acknowledged import SILENT_SECONDS, Subscription, measure_progress
from headrace_gateway.xds.ads import make_due_responses
from headrace_gateway.xds.generation_cache import GenerationCache
from headrace_gateway.xds.snapshot import CLUSTERS, ROUTES, TYPES, build_snapshot

CHAT = "llm/chat"
A, B = Engine("10.0.0.1", "a"), Engine("10.0.0.2", "b")
NEW = Engine("10.0.0.1", "new")  # at the address of the first


def snapshot(*ready, unready=(), **settings):
    """Of one service with these engines, each an address and the UID of its pod."""
    service = Service(GatewayConfig("llm", "chat", ("chat",), "chat", **settings))
    return build_snapshot(Catalog.build([service.with_engines(set(ready), set(unready))]), GenerationCache())


def envoy(*snapshots, refuse=(), answer_last=True, at=0.0):
    """An Envoy that was sent these in turn, and took all but the types that it refuses of the last."""
    subscriptions = {kind: Subscription() for kind in TYPES}
    for number, each in enumerate(snapshots, 1):
        last = number == len(snapshots)
        for kind, subscription in subscriptions.items():
            subscription.record_offer(each[kind], at)
            if not last or answer_last:
                words = "no" if last and kind in refuse else ""
                version = each[kind].version
                subscription.record_answer(version, "the one before" if words else version, words)
    return subscriptions


def test_every_envoy_must_have_it_and_only_pods_of_all_count():
    old, new = snapshot(A), snapshot(A, B)
    found = measure_progress(CHAT, new, [envoy(old, new), envoy(old, new, answer_last=False)], 0.0)
    assert (found.envoys, found.having, found.pods) == (2, 1, {"a"})
    found = measure_progress(CHAT, new, [envoy(old, new), envoy(new)], 0.0)
    assert (found.envoys, found.having, found.pods) == (2, 2, {"a", "b"})


def test_engines_that_are_not_ready_are_among_them():
    both = snapshot(A, unready=(B,))
    assert measure_progress(CHAT, both, [envoy(both)], 0.0).pods == {"a", "b"}


def test_who_refuses_keeps_what_it_had():
    old, new = snapshot(A), snapshot(A, slo=Slo(per_request=PerRequest()))
    found = measure_progress(CHAT, new, [envoy(old, new, refuse=(ROUTES,))], 0.0)
    assert (found.having, found.pods) == (0, {"a"})
    assert found.refusal == "no"


def test_who_refused_and_then_asks_for_more_has_still_refused():
    """It gives the nonce of what it refused, without an error, and the version that it has."""
    old, new = snapshot(A), snapshot(A, slo=Slo(per_request=PerRequest()))
    subscriptions = envoy(old, new, refuse=(ROUTES,))
    subscriptions[ROUTES].record_answer(new[ROUTES].version, old[ROUTES].version)
    found = measure_progress(CHAT, new, [subscriptions], 0.0)
    assert (found.having, found.refusal) == (0, "no")


def test_what_is_refused_for_another_service_leaves_this_one_programmed():
    config = GatewayConfig("llm", "chat", ("chat",), "chat")
    other = GatewayConfig("llm", "other", ("other",), "other")
    old = build_snapshot(Catalog.build([Service(config)]), GenerationCache())
    new = build_snapshot(Catalog.build([Service(config), Service(other)]), GenerationCache())
    envoys = [envoy(old, new, refuse=TYPES)]
    assert measure_progress(CHAT, new, envoys, 0.0).having == 1
    assert measure_progress("llm/other", new, envoys, 0.0).having == 0


def test_an_answer_to_something_else_counts_for_nothing():
    new = snapshot(A)
    subscriptions = envoy(new, answer_last=False)
    for subscription in subscriptions.values():
        subscription.record_answer("another", "another")
    assert measure_progress(CHAT, new, [subscriptions], 0.0).having == 0


def test_one_that_never_answers_holds_up_no_pods_and_is_not_forgotten():
    """Who can reach the port could connect and say nothing, and no pod would ever be routed."""
    new = snapshot(A)
    mute = envoy(new, answer_last=False)
    mute[CLUSTERS].had = True
    envoys = [envoy(new), mute]
    assert measure_progress(CHAT, new, envoys, SILENT_SECONDS).pods == frozenset()
    late = measure_progress(CHAT, new, envoys, SILENT_SECONDS + 0.1)
    assert (late.pods, late.having, late.envoys) == ({"a"}, 1, 2)


def test_one_without_any_configuration_holds_up_no_pods():
    """An Envoy that starts, or anything that opens a stream and asks for nothing."""
    new = snapshot(A)
    for fresh in ({}, envoy(new, answer_last=False)):
        found = measure_progress(CHAT, new, [envoy(new), fresh], 0.0)
        assert (found.pods, found.having, found.envoys) == ({"a"}, 1, 2)
    again = envoy(new, answer_last=False)
    again[ROUTES].had = True  # from another picker, perhaps without that pod
    assert measure_progress(CHAT, new, [envoy(new), again], 0.0).pods == frozenset()


def test_without_envoy_or_route_nothing_is_known():
    new = snapshot(A)
    assert measure_progress(CHAT, new, [], 0.0).pods == frozenset()
    assert measure_progress("llm/refused", new, [envoy(new)], 0.0).having == 0
    assert measure_progress(CHAT, {}, [envoy(new)], 0.0).having == 0


def test_a_change_that_envoy_does_not_see_needs_no_answer():
    old, new = snapshot(A), snapshot(A, balancer="Random")
    subscriptions = envoy(old)
    assert make_due_responses(new, subscriptions) == []
    assert measure_progress(CHAT, new, [subscriptions], 0.0).having == 1
    unanswered = envoy(old, answer_last=False)
    assert make_due_responses(new, unanswered) == []
    assert measure_progress(CHAT, new, [unanswered], 0.0).having == 0


def test_a_pod_is_known_by_itself_and_not_by_an_address_that_was_anothers():
    """The address of a pod that died may be given to the next before anyone was told of the death."""
    before, both, after = (snapshot(*each) for each in ([A], [A, NEW], [NEW]))
    subscriptions = envoy(before)
    assert measure_progress(CHAT, before, [subscriptions], 0.0).pods == {"a"}
    for now, known in ((both, {"a", "new"}), (after, {"new"})):
        assert measure_progress(CHAT, now, [subscriptions], 0.0).having == 0
        assert make_due_responses(now, subscriptions) == []  # Envoy has that address
        found = measure_progress(CHAT, now, [subscriptions], 0.0)
        assert (found.having, found.pods) == (1, known)
