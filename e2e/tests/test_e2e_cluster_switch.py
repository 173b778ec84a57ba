"""A policy changed while engines work: applied everywhere, nothing restarted, nothing lost, same tokens."""

import asyncio

import aiohttp
import pytest

from e2e.bench import switch
from e2e.demo import services
from e2e.demo.workload import POLICIES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]


async def test_a_change_under_load_costs_no_request_and_changes_no_token(stage):
    before = stage.lives()
    undisturbed, disturbed = switch.Answers(), switch.Answers()
    async with aiohttp.ClientSession(stage.url) as session:
        await switch.clients(session, undisturbed, rounds=1)
        load = asyncio.create_task(switch.clients(session, disturbed))
        for change in ({"policy": "LARRY", "larry": {"alpha": 3}}, *({"policy": each} for each in POLICIES)):
            await asyncio.to_thread(stage.until, lambda: disturbed.in_flight, 60, "requests in flight")
            for name in stage.samples:
                await asyncio.to_thread(services.schedule, stage.kube, name, change)
                assert stage.service(name)["status"]["policy"]["name"] == change["policy"]
            await asyncio.to_thread(_completed, stage, disturbed, switch.CLIENTS)
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
    assert undisturbed.errors == disturbed.errors == []
    assert switch.changed(undisturbed, disturbed) == 0
    assert services.restarted(before, stage.lives()) == 0


def _completed(stage, answers, number):
    """Wait until so many more requests are answered."""
    wanted = answers.completed + number
    stage.until(lambda: answers.errors or answers.completed >= wanted, 300, "requests answered")


def test_every_replica_reports_the_policy_it_runs(stage):
    services.schedule(stage.kube, "chat", {"policy": "LARRY", "larry": {"alpha": 7}})
    status = stage.service("chat")["status"]
    for pod in stage.pods("chat"):
        seen = stage.sidecar(pod, "/status")
        assert seen["policy"]["name"] == "LARRY"
        assert seen["policy"]["appliedHash"] == status["policy"]["hash"]
        assert seen["policy"]["fallbackSteps"] == 0


def test_the_balancer_changes_live_too(stage):
    before = stage.lives()
    for balancer in ("RoundRobin", "LeastRequest", "PowerOfTwo", "Random", "SAL"):
        stage.patch("chat", {"routing": {"balancer": balancer}})
        assert [stage.complete("chat").status_code for _ in range(4)] == [200] * 4
    assert services.restarted(before, stage.lives()) == 0
