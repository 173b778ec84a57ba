"""The demo of a pool: what is sent while, when services have moved, and what its table says."""

import asyncio
import io

import pytest
from rich.console import Console

from e2e.demo import load_shift
from e2e.demo.load_shift import BUSY, QUIET, Clients
from e2e.demo.metrics import Sample
from e2e.demo.services import NotReadyError
from e2e.demo.steps import Steps


class DoneError(Exception):
    """The test has seen enough."""


@pytest.fixture
def clock(monkeypatch):
    """Seconds that passed; they pass only as somebody sleeps."""
    passed = [0.0]

    async def sleep(seconds):
        passed[0] += seconds

    monkeypatch.setattr(load_shift.asyncio, "sleep", sleep)
    monkeypatch.setattr(load_shift.time, "monotonic", lambda: passed[0])
    return passed


async def test_as_many_requests_are_sent_as_the_rate_says(monkeypatch):
    minutes, clients = 50, Clients("http://gateway", "quiet")
    passed, sent, take_turns = [0.0], [], asyncio.sleep

    async def sleep(seconds):
        passed[0] += seconds
        clients.rate = BUSY if passed[0] > 60 * minutes else QUIET
        if passed[0] > 2 * 60 * minutes:
            raise DoneError
        await take_turns(0)

    async def answer(_url, calls, _progress):
        sent.append(passed[0])
        return [Sample(call.service, 0.0) for call in calls]

    monkeypatch.setattr(load_shift, "TICK", 1.0)
    monkeypatch.setattr(load_shift, "SERVICES", ("essays",))
    monkeypatch.setattr(load_shift, "replay", answer)
    monkeypatch.setattr(load_shift.asyncio, "sleep", sleep)
    with pytest.raises(ExceptionGroup):
        await clients.run()
    quiet = sum(at <= 60 * minutes for at in sent)
    assert quiet == pytest.approx(QUIET * 60 * minutes, rel=0.3)
    assert len(sent) - quiet == pytest.approx(BUSY * 60 * minutes, rel=0.1)


class Kube:
    """Has a pool whose status is the next of these at each look, the last one for good."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)

    def get(self, *_):
        return {"status": self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]}


def status(reason, *groups):
    return {
        "conditions": [{"type": "AsPlanned", "status": "True", "reason": reason, "message": reason}],
        "plan": {"message": "1 GPUs, today 2"},
        "placement": {"services": [{"name": "any", "group": group} for group in groups]},
    }


async def test_services_have_moved_once_nothing_moves_and_the_pool_has_them_so(clock):
    clients, kube = Clients("http://gateway", "quiet"), Kube({}, status("Moving"), status("Moving", "a", "a"))
    kube.statuses += [status("NothingToMove", "a", "a")]
    await load_shift._move(kube, clients, Steps(), together=True)
    assert (clients.phase, clock[0]) == ("moving to one device", 3.0)


async def test_services_that_do_not_move_end_the_demo_with_the_reason(clock):
    clients = Clients("http://gateway", "busy")
    with pytest.raises(NotReadyError, match="NothingToMove"):
        await load_shift._move(Kube(status("NothingToMove", "a", "a")), clients, Steps(), together=False)
    assert load_shift.PLAN_SECONDS < clock[0] < load_shift.PLAN_SECONDS + 5


def test_the_table_has_what_each_phase_was_like():
    fast = Sample("essays", 0.0, ttft=0.1, tpot=0.01, e2e=3.0)
    slow = Sample("essays", 0.0, ttft=0.1, tpot=0.02, e2e=6.0)
    lost = Sample("reports", 0.0, error="gone")
    shown = io.StringIO()
    sent = [("quiet", fast), ("busy", slow), ("busy", fast), ("busy", lost)]
    Console(file=shown, width=120).print(load_shift._comparison(sent))
    rows = [line.replace("│", "").split() for line in shown.getvalue().splitlines() if "essays" in line]
    assert [row[:4] + row[-1:] for row in rows] == [
        ["quiet", "essays", "1", "0", "100%"],
        ["busy", "essays", "2", "0", "50%"],
    ]
