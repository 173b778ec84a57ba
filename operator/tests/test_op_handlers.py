"""Kopf only watches for us: by label, and into cache and queue."""

import itertools

import kopf
import pytest
from kopf._cogs.structs.references import Resource  # what its watches look selectors up by
from op_world import body, pod

from headrace_operator.api import Key
from headrace_operator.kube import handlers
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.kinds import OWNED, POD, SERVICE
from headrace_operator.run.workqueue import WorkQueue

KEY = Key("llm", "chat")


def selectors(resource):
    settings = kopf.OperatorSettings()
    handlers.configure_kopf(settings)
    found = Resource(resource.group, resource.version, resource.plural, resource.kind, namespaced=True)
    return set(settings.watching.label_selectors.collect(found))


@pytest.mark.parametrize("resource", [*OWNED, POD], ids=lambda resource: resource.kind)
def test_owned_kinds_and_pods_are_watched_by_label(resource):
    assert selectors(resource) == {"app.kubernetes.io/managed-by=headrace"}


def test_all_services_are_watched():
    assert selectors(SERVICE) == set()


class Registered:
    """The functions that were registered for one kind."""

    def __init__(self, resource):
        registry = kopf.OperatorRegistry()
        self.cache, self.queue = Cache(), WorkQueue(lambda: 0.0)
        handlers.register_watches(registry, self.cache, self.queue.add)
        handlers_of = {h.id: h.fn for h in registry._watching.get_all_handlers()}
        self.event = handlers_of[f"on-{resource.plural}"]


@pytest.mark.parametrize("event", ["MODIFIED", "DELETED"])
async def test_a_service_has_those_looked_at_that_claim_its_name(event):
    registered = Registered(SERVICE)
    model = {"source": "hf://a/b", "servedName": "m"}
    for name in ("chat", "rival"):
        registered.cache.put(body(name, model=model))
    registered.cache.put(body("other"))
    changed = body(model=model)
    changed["metadata"]["resourceVersion"] = "1000"
    await registered.event(event={"type": event}, body=changed)
    assert {(await registered.queue.next_key()).name for _ in range(2)} == {"chat", "rival"}
    assert registered.queue.depth == 0


async def test_events_queue_the_service_that_they_concern():
    registered = Registered(POD)
    await registered.event(event={"type": "MODIFIED"}, body=pod("a"))
    assert registered.queue.depth == 1
    assert len(registered.cache.pods(KEY)) == 1
    await registered.event(event={"type": "DELETED"}, body=pod("a"))
    assert registered.cache.pods(KEY) == []


async def test_what_is_known_already_wakes_nobody():
    """Mostly our own write; woken by it, a service that fails would be tried again without a pause."""
    registered = Registered(SERVICE)
    written = body()
    written["metadata"]["resourceVersion"] = "7"
    registered.cache.put(written)
    await registered.event(event={"type": "MODIFIED"}, body=written)
    assert registered.queue.depth == 0
    newer = body()
    newer["metadata"]["resourceVersion"] = "8"
    await registered.event(event={"type": "MODIFIED"}, body=newer)
    assert registered.queue.depth == 1


class Watch:
    """Asks in vain, and begins anew when kopf's backoff for a silent watch ends."""

    def __init__(self, backoff, at, gives_up=70.0):
        self._backoff, self._gives_up = backoff, gives_up
        self.at, self.end, self._pauses = at, at + gives_up, iter(backoff)

    def fail(self):
        self.at += next(self._pauses)
        if self.at > self.end:
            self.at, self._pauses = self.end, iter(self._backoff)
            self.end += self._gives_up


class Outage:
    """Eight watches that share a Patience, until `seconds` have passed."""

    def __init__(self, seconds):
        self.now, self.asking, self.asked = 0.0, None, []
        self.backoff = handlers.WatchBackoff(lambda: self.now, lambda: self.asking)
        self.watches = [Watch(self.backoff, 0.01 * number) for number in range(8)]
        while (watch := min(self.watches, key=lambda each: each.at)).at <= seconds:
            self.now, self.asking = watch.at, watch
            self.asked.append(self.now)
            watch.fail()


def test_watches_soon_ask_seldom_in_an_outage_even_when_each_attempt_counts_twice():
    asked = Outage(300.0).asked
    assert len(asked) * 2 / 300 <= 0.85  # resync and retries of services come on top
    assert sum(at <= 8.1 for at in asked) >= 3 * 8  # a short outage is over soon


def test_a_watch_that_works_again_begins_with_short_pauses_whatever_others_do():
    outage = Outage(300.0)
    outage.now, outage.asking = 300.0, Watch(outage.backoff, 0.0)
    assert next(iter(outage.backoff)) == 1.0
    outage.asking = outage.watches[0]
    assert next(iter(outage.backoff)) == 36.0
    outage.now += 60.0
    assert next(iter(outage.backoff)) == 1.0


async def test_watches_never_give_up():
    settings = kopf.OperatorSettings()
    handlers.configure_kopf(settings)
    assert len(list(itertools.islice(settings.networking.error_backoffs, 1000))) == 1000
    assert settings.networking.request_timeout <= 30
    assert settings.watching.inactivity_timeout <= 75
