"""Fixtures of the gateway's tests: one Envoy and one picker per test module."""

import aiohttp
import pytest
from sc_gateway_rig import Rig, until


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("gateway"))
    rig.write_catalog({})
    rig.start_picker()
    rig.start_envoy()
    yield rig
    rig.stop()


@pytest.fixture
async def rig(gateway, session):
    """The module's gateway with engines of this test only."""
    started = []
    make = Rig.engine

    gateway.tests += 1

    async def engine(number, **settings):
        """Addresses of its own for each test, since Envoy and picker remember engines for some seconds."""
        started.append(await make(gateway, gateway.tests * 10 + number, **settings))
        return started[-1]

    gateway.engine = engine
    if gateway.picker is None:

        async def missed():
            return not await gateway.picker_healthy(session)

        await until(missed, "envoy has seen that the picker of the test before is gone")
        gateway.start_picker()
    yield gateway
    for each in started:
        await each.stop()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        yield session
