"""Fixtures of the gateway's tests: one Envoy and one picker per test module."""

import aiohttp
import pytest
from gw_rig import Rig


@pytest.fixture(scope="module")
def gateway(request, tmp_path_factory):
    """The module's `RIG`, started; by default the plain one."""
    rig = getattr(request.module, "RIG", Rig)(tmp_path_factory.mktemp("gateway"))
    rig.start()
    yield rig
    rig.stop()


@pytest.fixture
async def rig(gateway, session):
    """The module's gateway with engines of this test only."""
    started = []
    gateway.tests += 1

    async def engine(number, **settings):
        """Addresses of its own for each test, since Envoy and picker remember engines for some seconds."""
        started.append(await Rig.engine(gateway, gateway.tests * 10 + number, **settings))
        return started[-1]

    gateway.engine = engine
    await gateway.revive(session)
    yield gateway
    for each in started:
        await each.stop()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        yield session
