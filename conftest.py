"""Guards and fixtures for every test tree in the repository."""

import gc
import inspect
import sys
import sysconfig
from pathlib import Path

import hypothesis
import pytest

# How long an example takes says something of the machine, nothing of what is tested.
hypothesis.settings.register_profile(
    "headrace", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("headrace")


def pytest_collection_finish(session):  # noqa: ARG001  (pytest asks for the name)
    """Stop if a folder named `operator` has taken the place of the standard library's module."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    origin = getattr(sys.modules.get("operator"), "__file__", None)
    if origin is None or not Path(origin).is_relative_to(stdlib):
        pytest.exit(f"the standard library's `operator` is shadowed by {origin}", returncode=3)


def pytest_collection_modifyitems(items):
    """Bear with connections that a test on the real API server leaves to the garbage collector.

    aiohttp waits for TLS connections to close, but not for that of a watch that was cancelled: it stays open
    if its loop ends first, and Python complains at whatever time it finds it.
    """
    for item in items:
        if item.get_closest_marker("apiserver"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item, nextitem):
    """Find such connections where they came from, so that no other test is charged with them."""
    result = yield
    last_of_module = nextitem is None or nextitem.path != item.path
    if item.get_closest_marker("apiserver") and (last_of_module or inspect.iscoroutinefunction(item.obj)):
        gc.collect()
    return result


@pytest.fixture(scope="session")
def apiserver():
    """Start a real API server with workload controllers: `.kubeconfig`, `.url`, `.token` (4 s to start)."""
    from e2e.cluster.control_plane import WORKLOADS, ControlPlane  # noqa: PLC0415  only where it is used

    with ControlPlane(WORKLOADS) as control_plane:
        yield control_plane
