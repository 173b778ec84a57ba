"""The garbage collector stands aside while a simulation runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def no_collector() -> Iterator[None]:
    """Collect once, then not again: a simulation makes millions of objects, and hardly a cycle among them."""
    enabled = gc.isenabled()
    _set_modules_aside()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@cache
def _set_modules_aside() -> None:
    """Set what imports made aside: it stays anyway, and to look through it takes half a second each time."""
    gc.collect()
    gc.freeze()
