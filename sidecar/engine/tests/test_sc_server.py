"""The sidecar as its readers meet it: the real server on a real port, beside a fake engine."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request
from sc_fake_engine import FakeEngine, finished

from e2e import ports
from headrace_engine.contracts import (
    EngineStatus,
    LoadReport,
    PolicyDocument,
    decode,
    dumps,
    loads,
    text_hash,
)
from headrace_engine.contracts.traffic import Traffic
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.control.paths import turn_group_path
from headrace_engine.control.policy_file import write_policy
from headrace_engine.control.records import ErrorCode, StepSample
from headrace_engine.policies import registry
from headrace_sidecar.request_log import RequestLog
from headrace_sidecar.serve import run_sidecar
from headrace_sidecar.server import _finished_requests
from headrace_sidecar.settings import read_settings

GOLDEN = Path(__file__).parents[3] / "engine_patches" / "tests" / "golden"
DEADLINE = 20.0


class Sidecar:
    """A sidecar that runs in this process, and a client for it."""

    def __init__(self, root, config):
        self.root, self.config = root, config
        self.port, self.engine_port = ports.free(2)
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            "HEADRACE_DIR": str(root),
            "HEADRACE_POLICY_DIR": str(config),
            "HEADRACE_PORT": str(self.port),
            "HEADRACE_ENGINE_URL": f"http://127.0.0.1:{self.engine_port}",
        }

    async def get(self, path):
        async with self.session.get(path) as response:
            return response.status, await response.text()

    async def load(self):
        return loads(LoadReport, (await self.get("/load"))[1])

    async def status(self):
        return loads(EngineStatus, (await self.get("/status"))[1])

    async def until(self, condition):
        """Poll `condition` until it is true; returns the seconds it took."""
        started = time.monotonic()
        while not await condition():
            assert time.monotonic() - started < DEADLINE, f"not within {DEADLINE} s"
            await asyncio.sleep(0.01)
        return time.monotonic() - started

    async def until_state(self, state):
        async def reached():
            return (await self.status()).engine.state == state

        await self.until(reached)


@pytest.fixture
def folders(tmp_path):
    for folder in ("headrace", "headrace/control", "headrace/stats", "config"):
        (tmp_path / folder).mkdir()
    return tmp_path / "headrace", tmp_path / "config"


@pytest.fixture
async def sidecar(folders):
    sidecar = Sidecar(*folders)
    async with (
        run_sidecar(read_settings(sidecar.environment)),
        aiohttp.ClientSession(sidecar.url) as sidecar.session,
    ):
        yield sidecar


@pytest.fixture
def engine(folders):
    engine = FakeEngine(folders[0])
    engine.report()
    yield engine
    engine.close()


LARRY = PolicyDocument(policy="LARRY").sealed()
FCFS = PolicyDocument(policy="FCFS").sealed()


async def test_it_serves_without_an_engine_and_becomes_ready_with_a_policy(sidecar):
    assert (await sidecar.status()).engine.state == "Starting"
    assert not (await sidecar.load()).serving
    status, text = await sidecar.get("/readyz")
    assert (status, text) == (503, "there is no policy document yet\n")
    write_policy(sidecar.config / "policy.json", FCFS)

    async def ready():
        return (await sidecar.get("/readyz"))[0] == 200

    await sidecar.until(ready)


async def test_a_policy_reaches_the_engine_and_is_confirmed(sidecar, engine):
    for document in (LARRY, FCFS):
        write_policy(sidecar.config / "policy.json", document)

        async def applied(document=document):
            engine.apply()
            return (await sidecar.status()).policy.applied_hash == document.hash

        await sidecar.until(applied)
        policy = (await sidecar.status()).policy
        assert (policy.name, policy.rejected_hash, policy.error) == (document.policy, "", "")


async def test_whom_the_engine_takes_turns_with_is_confirmed(sidecar):
    assert (await sidecar.status()).turn_group == ""
    document = dumps(TurnGroup(host="10.0.3.7", port=9500, token="c0ffee00" * 4))
    path = sidecar.config / "turn-group.json"

    async def confirmed():
        return (await sidecar.status()).turn_group == text_hash(document.encode())

    path.write_text(document)
    await sidecar.until(confirmed)
    assert turn_group_path(sidecar.root).read_text() == document
    path.unlink()

    async def is_alone():
        return (await sidecar.status()).turn_group == ""

    await sidecar.until(is_alone)


async def test_a_bad_policy_is_reported_and_the_good_one_stays(sidecar, engine):
    write_policy(sidecar.config / "policy.json", LARRY)

    async def applied():
        engine.apply()
        return (await sidecar.status()).policy.applied_hash == LARRY.hash

    await sidecar.until(applied)
    bad = PolicyDocument(policy="LARRY", parameters={"alpha": -5}).sealed()
    write_policy(sidecar.config / "policy.json", bad)

    async def refused():
        return (await sidecar.status()).policy.rejected_hash == bad.hash

    await sidecar.until(refused)
    policy = (await sidecar.status()).policy
    assert (policy.name, policy.applied_hash) == ("LARRY", LARRY.hash)
    assert "alpha" in policy.error
    engine.apply()
    assert (await sidecar.status()).policy.applied_hash == LARRY.hash


async def test_a_policy_that_the_engine_refuses_is_reported(sidecar, engine):
    engine.report(error_code=ErrorCode.PARAMETERS)
    write_policy(sidecar.config / "policy.json", LARRY)

    async def refused():
        return (await sidecar.status()).policy.rejected_hash == LARRY.hash

    await sidecar.until(refused)
    assert (await sidecar.status()).policy.error == (
        "the engine refused the policy or its parameters; see the engine's log"
    )


async def test_what_is_served_follows_the_contracts(sidecar, engine):
    engine.report(running=1, applied_hash=int(LARRY.hash, 16))
    await sidecar.until_state("Running")
    for path, golden, kind in (
        ("/load", "load_report.json", LoadReport),
        ("/status", "engine_status.json", EngineStatus),
        ("/traffic", "traffic.json", Traffic),
    ):
        served = json.loads((await sidecar.get(path))[1])
        assert set(served) == set(json.loads((GOLDEN / golden).read_text()))
        assert json.loads(dumps(decode(kind, served))) == served
    status = await sidecar.status()
    assert status.policies == registry.policy_names()
    assert (status.runtime_version, status.policy_schema) == ("0.1.0", 2)
    assert (status.engine.boot, status.engine.vllm_version) == (engine.board.boot, "0.32.0")


async def test_finished_requests_can_be_had(sidecar, engine):
    await sidecar.until_state("Idle")
    assert await sidecar.get("/requests") == (200, "")
    engine.finished.append(finished(prompt_tokens=123))

    async def told():
        return '"prompt_tokens": 123, ' in (await sidecar.get("/requests"))[1]

    await sidecar.until(told)


async def test_traffic_is_told_in_sums(sidecar, engine):
    for prompt_tokens in (100, 200):
        engine.finished.append(finished(time=time.time(), e2e=0.5, prompt_tokens=prompt_tokens))

    async def told():
        windows = loads(Traffic, (await sidecar.get("/traffic"))[1]).windows
        return sum(window.prompt_tokens for window in windows) == 300

    await sidecar.until(told)


async def test_single_requests_are_told_only_inside_the_pod(sidecar):
    request = make_mocked_request("GET", "/requests").clone(remote="10.1.2.3")
    answer = await _finished_requests(RequestLog(), request)
    assert answer.status == 403
    assert "kubectl port-forward" in answer.text


async def test_an_engine_that_restarts_is_followed(sidecar, engine):
    await sidecar.until_state("Idle")
    again = FakeEngine(sidecar.root, started_at=2000.0)
    await sidecar.until_state("Starting")
    again.report(arrivals=3)
    await sidecar.until_state("Idle")
    assert (await sidecar.load()).boot == again.board.boot
    again.finished.append(finished())

    async def counted():
        return "headrace_request_e2e_seconds_count 1.0" in (await sidecar.get("/metrics"))[1]

    await sidecar.until(counted)
    again.close()


async def test_a_stock_engine_says_why(sidecar):
    engine = FakeEngine(sidecar.root, mode="Stock", reason="vLLM 0.40 is not supported")
    await sidecar.until_state("Stock")
    status = await sidecar.status()
    assert status.engine.reason == "vLLM 0.40 is not supported"
    assert status.policy.applied_hash == ""
    engine.close()


class Lines:
    """Reads a load stream line by line."""

    def __init__(self, sidecar):
        self.sidecar = sidecar

    async def __aenter__(self):
        self.response = await self.sidecar.session.get(
            "/load/stream", timeout=aiohttp.ClientTimeout(total=None)
        )
        return self

    async def __aexit__(self, *_):
        self.response.close()

    async def next(self):
        async with asyncio.timeout(DEADLINE):
            return loads(LoadReport, await self.response.content.readline())

    async def until(self, condition):
        while not condition(report := await self.next()):
            pass
        return report


async def test_a_stream_tells_each_change(sidecar, engine):
    async with Lines(sidecar) as lines:
        for waiting in (3, 1, 4):
            engine.report(waiting=waiting)
            await lines.until(lambda report, waiting=waiting: report.waiting == waiting)


async def test_a_quiet_stream_gives_a_sign_of_life(sidecar, engine):
    async with Lines(sidecar) as lines:
        for _ in range(3):
            await lines.next()


async def test_a_busy_engine_does_not_flood_a_stream(sidecar, engine):
    """However often the engine reports: no two lines within a look's time."""
    count = 0

    async def hurry(stop):
        n = 0
        while time.monotonic() < stop:
            n += 1
            engine.report(running=n)
            await asyncio.sleep(0)

    async with Lines(sidecar) as lines:
        begun = time.monotonic()
        stop = begun + 1.0
        hurrying = asyncio.create_task(hurry(stop))
        while time.monotonic() < stop:
            await lines.next()
            count += 1
        await hurrying
    assert count <= (time.monotonic() - begun) / 0.05 + 3


async def test_many_readers_and_a_dead_one_are_served(sidecar, engine):
    _, writer = await asyncio.open_connection("127.0.0.1", sidecar.port)
    writer.write(b"GET /load/stream HTTP/1.1\r\nHost: x\r\n\r\n")
    await writer.drain()
    readers = [Lines(sidecar) for _ in range(20)]
    for reader in readers:
        await reader.__aenter__()
    await readers[0].__aexit__()
    engine.report(running=77)
    for reader in readers[1:]:
        await reader.until(lambda report: report.running == 77)
        await reader.__aexit__()
    writer.close()


async def test_on_sigterm_the_command_ends_its_streams_and_itself(folders, engine):
    sidecar = Sidecar(*folders)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace_sidecar.engine", "serve"), env=sidecar.environment
    )

    async def answers():
        try:
            return (await sidecar.get("/healthz"))[0] == 200
        except aiohttp.ClientConnectionError:
            return False

    try:
        async with aiohttp.ClientSession(sidecar.url) as sidecar.session:
            await sidecar.until(answers)
            async with Lines(sidecar) as lines:
                await lines.next()
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(DEADLINE):
                    while await lines.response.content.readline():
                        pass
                    assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_files_that_cannot_be_read_do_not_end_it(sidecar):
    stats = sidecar.root / "stats"
    os.mkfifo(stats / "rank0.board")
    (stats / "rank0.steps").write_bytes(b"\0" * 10_000)
    (stats / "rank0.finished").symlink_to("/dev/zero")
    (stats / "rank0.json").mkdir()
    (sidecar.config / "policy.json").mkdir()

    async def said():
        return "cannot be read" in (await sidecar.status()).policy.error

    await sidecar.until(said)
    assert (await sidecar.get("/healthz"))[0] == 200


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/load", 405), ("GET", "/nothing", 404)])
async def test_nothing_else_is_served(sidecar, method, path, status):
    async with sidecar.session.request(method, path) as response:
        assert response.status == status


async def test_how_long_steps_take_is_told_once_it_is_known(sidecar, engine):
    assert (await sidecar.get("/cost"))[0] == 503
    for tokens in range(10, 50):
        engine.steps.append(StepSample(tokens, 0, 0, 0, 0.01 + tokens * 1e-4))

    async def known():
        return (await sidecar.get("/cost"))[0] == 200

    await sidecar.until(known)
    found = json.loads((await sidecar.get("/cost"))[1])
    assert found["fixed"] == pytest.approx(0.01)
    assert found["per_prefill"] == pytest.approx(1e-4)
