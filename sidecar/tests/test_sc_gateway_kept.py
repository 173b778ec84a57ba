"""What is kept: what the catalogs go on asking for, and nothing else."""

import weakref

from headrace_sidecar.gateway.kept import Kept, next_catalog


class Thing:
    """Can be weakly referenced."""


def test_what_each_catalog_asks_for_is_made_once_and_the_rest_forgotten():
    made = []

    @Kept
    def thing(name):
        made.append(name)
        return Thing()

    first = thing("a")
    gone = weakref.ref(thing("b"))
    for _ in range(3):
        next_catalog()
        assert thing("a") is first
    assert made == ["a", "b"]
    assert gone() is None
    thing("b")
    assert made == ["a", "b", "b"]
