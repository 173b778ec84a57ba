"""Guards and fixtures for every test tree in the repository."""

import gc
import inspect
import sys
import sysconfig
import warnings
from pathlib import Path

import pytest


def pytest_collection_finish(session):  # noqa: ARG001  (pytest asks for the name)
    """Stop if a folder named `operator` has taken the place of the standard library's module."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    origin = getattr(sys.modules.get("operator"), "__file__", None)
    if origin is None or not Path(origin).is_relative_to(stdlib):
        pytest.exit(f"the standard library's `operator` is shadowed by {origin}", returncode=3)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """Let go of the API server's TLS connections where the test ends, not in the middle of another one.

    aiohttp waits for connections to close, but not for that of a watch that was cancelled.
    """
    result = yield
    if item.get_closest_marker("apiserver") and inspect.iscoroutinefunction(item.obj):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return result


@pytest.fixture(scope="session")
def apiserver():
    """A real API server with the workload controllers: `.kubeconfig`, `.url`, `.token` (4 s to start)."""
    from e2e.cluster.control_plane import WORKLOADS, ControlPlane  # noqa: PLC0415  only where it is used

    with ControlPlane(WORKLOADS) as control_plane:
        yield control_plane
