"""The cache holds what catalogs go on asking for, and nothing else."""

import weakref

from headrace_gateway.xds.generation_cache import GenerationCache


class Thing:
    """Can be weakly referenced."""


def test_what_each_catalog_asks_for_is_made_once_and_the_rest_forgotten():
    made, cache = [], GenerationCache()

    def make(name):
        made.append(name)
        return Thing()

    def thing(name):
        return cache.get_or_make(make, name)

    first = thing("a")
    gone = weakref.ref(thing("b"))
    for _ in range(3):
        cache.begin_generation()
        assert thing("a") is first
    assert made == ["a", "b"]
    assert gone() is None
    thing("b")
    assert made == ["a", "b", "b"]
