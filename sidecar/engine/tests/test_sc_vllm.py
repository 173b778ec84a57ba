"""The sidecar beside the real vLLM, with the plugin where the install command put it.

One engine with a KV cache so small that requests have to wait: only then can a policy make a difference.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from e2e import ports
from headrace_engine.contracts import EngineStatus, LoadReport, PolicyDocument, Slo, loads
from headrace_engine.contracts.traffic import Traffic
from headrace_engine.control.policy_file import write_policy
from headrace_engine.cost.fit import MIN_PREFILLS
from headrace_sidecar.stock import read_stock_load
from headrace_sidecar.stock_speed import StockSpeed

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[3]
START_WITHIN = 900.0
ANSWER_WITHIN = 120.0
KEEP_ALIVE = 3.0  # vLLM closes a connection that was idle for 5 s, whatever is on the way to it
SLO = Slo(ttft_ms=60_000, tpot_ms=60_000, e2e_ms=1)
FCFS = PolicyDocument(policy="FCFS", slo=SLO).sealed()
LARRY = PolicyDocument(policy="LARRY", parameters={"alpha": 5}, slo=SLO).sealed()
PROMPTS = ["The mill stands by the river. " * (1 + (7 * n) % 13) + str(n) for n in range(24)]


def started(log, *arguments, **environment):
    """A process of its own group whose output goes to the file `log`."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=os.environ | environment,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Pod:
    """What an engine pod runs: install, sidecar, engine."""

    def __init__(self, folder):
        self.folder = folder
        self.root, self.config = folder / "headrace", folder / "config"
        self.vllm, self.sidecar = (f"http://127.0.0.1:{port}" for port in ports.free(2))
        for path in (self.root, self.config):
            path.mkdir()
        self.environment = {
            "HEADRACE_DIR": str(self.root),
            "HEADRACE_POLICY_DIR": str(self.config),
            "HEADRACE_PORT": self.sidecar.rpartition(":")[2],
            "HEADRACE_ENGINE_URL": self.vllm,
        }
        self.processes = []

    def start(self):
        subprocess.run(
            [sys.executable, "-m", "e2e.cluster.model", self.folder / "model"], cwd=ROOT, check=True
        )
        sidecar = ("-m", "headrace_sidecar.engine")
        subprocess.run([sys.executable, *sidecar, "install"], env=os.environ | self.environment, check=True)
        self.policy(FCFS)
        self.processes.append(started(self.folder / "sidecar.log", *sidecar, "serve", **self.environment))
        self.processes.append(
            started(
                self.folder / "vllm.log",
                *("-m", "vllm.entrypoints.openai.api_server"),
                *("--model", str(self.folder / "model"), "--served-model-name", "tiny"),
                *("--host", "127.0.0.1", "--port", self.vllm.rpartition(":")[2]),
                *("--dtype", "float32", "--enforce-eager", "--max-model-len", "1024", "--block-size", "32"),
                *("--num-gpu-blocks-override", "40", "--max-num-seqs", "8"),
                HEADRACE_DIR=str(self.root),
                PYTHONPATH=str(self.root / "plugin"),
                VLLM_CPU_OMP_THREADS_BIND="nobind",
                VLLM_CPU_KVCACHE_SPACE="1",
            )
        )

    def policy(self, document):
        write_policy(self.config / "policy.json", document)

    def stop(self):
        for process in reversed(self.processes):
            end(process)


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    pod = Pod(tmp_path_factory.mktemp("pod"))
    try:
        pod.start()
        yield pod
    finally:
        pod.stop()


class Client:
    """Asks engine and sidecar of `pod`."""

    def __init__(self, pod, session):
        self.pod = pod
        self.session = session

    async def text(self, url):
        async with self.session.get(url) as response:
            return await response.text()

    async def status(self):
        return loads(EngineStatus, await self.text(f"{self.pod.sidecar}/status"))

    async def load(self):
        return loads(LoadReport, await self.text(f"{self.pod.sidecar}/load"))

    async def until(self, condition, within=ANSWER_WITHIN):
        """Poll until `condition`; returns the seconds it took."""
        begun = time.monotonic()
        while not await condition():
            assert time.monotonic() - begun < within, (self.pod.folder / "vllm.log").read_text()[-3000:]
            assert all(process.poll() is None for process in self.pod.processes)
            await asyncio.sleep(0.02)
        return time.monotonic() - begun

    async def serving(self):
        try:
            async with self.session.get(f"{self.pod.vllm}/health") as response:
                return response.status == 200 and (await self.load()).serving
        except aiohttp.ClientConnectionError:
            return False

    async def completion(self, prompt):
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 60, "temperature": 0, "ignore_eos": True}
        async with self.session.post(f"{self.pod.vllm}/v1/completions", json=body) as response:
            assert response.status == 200, await response.text()
            return (await response.json())["choices"][0]["text"]

    @contextlib.asynccontextmanager
    async def busy(self):
        """All prompts in flight, each asked again when it is answered, until the block ends.

        However fast the engine is, requests wait. Gives the set of each prompt's answers, to be read after
        the block.
        """
        answers, over = {prompt: set() for prompt in PROMPTS}, asyncio.Event()

        async def ask(prompt):
            while not over.is_set():
                answers[prompt].add(await self.completion(prompt))

        async with asyncio.TaskGroup() as tasks:
            for prompt in PROMPTS:
                tasks.create_task(ask(prompt))
            yield answers
            over.set()

    async def finishes(self, number):
        """Wait until so many more requests have finished."""
        first = (await self.load()).finishes

        async def finished():
            return (await self.load()).finishes >= first + number

        await self.until(finished)

    async def at_rest(self):
        """The load once the board tells of no request any more; answers reach clients before."""

        async def empty():
            load = await self.load()
            return load.finishes == load.arrivals and load.free_kv_blocks == load.total_kv_blocks

        await self.until(empty)
        return await self.load()

    async def metrics(self):
        page = await self.text(f"{self.pod.sidecar}/metrics")
        samples = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    async def apply(self, document):
        """Change the service's policy; returns the seconds until the engine confirmed it."""
        self.pod.policy(document)

        async def confirmed():
            return (await self.status()).policy.applied_hash == document.hash

        return await self.until(confirmed)


@pytest.fixture
async def client(pod):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(keepalive_timeout=KEEP_ALIVE)) as session:
        client = Client(pod, session)
        await client.until(client.serving, within=START_WITHIN)
        yield client


async def test_a_policy_change_under_load_is_applied_and_changes_no_answer(client):
    undisturbed = dict(zip(PROMPTS, await asyncio.gather(*map(client.completion, PROMPTS)), strict=True))

    async def crowded():
        return (await client.load()).waiting >= 8

    async with client.busy() as answers:
        await client.until(crowded)
        for document in (LARRY, FCFS, LARRY):
            seconds = await client.apply(document)
            load, status = await client.load(), await client.status()
            print(f"{document.policy} applied after {seconds:.3f} s, {load.running}+{load.waiting} requests")
            assert (status.policy.name, status.policy.error) == (document.policy, "")
            await client.finishes(len(PROMPTS) // 2)
    assert answers == {prompt: {text} for prompt, text in undisturbed.items()}

    status = await client.status()
    assert (status.policy.fallback_steps, status.policy.disabled) == (0, False)
    assert status.engine.vllm_version.startswith("0.")


async def test_an_idle_engine_confirms_a_policy_change(client):
    async def idle():
        return (await client.status()).engine.state == "Idle"

    await client.until(idle)
    for document in (FCFS, LARRY):
        seconds = await client.apply(document)
        print(f"{document.policy} applied after {seconds:.3f} s by an idle engine")
        assert await idle()


async def test_load_and_metrics_tell_what_the_engine_did(client):
    before = await client.at_rest()
    one_by_one, at_once = PROMPTS[:MIN_PREFILLS], PROMPTS[MIN_PREFILLS:]
    for prompt in one_by_one:  # prompts that arrive together may share a step, and a rate takes several
        await client.completion(prompt)
    await asyncio.gather(*map(client.completion, at_once))

    load = await client.at_rest()
    assert load.max_model_len == 1024
    assert load.finishes == before.finishes + len(PROMPTS)
    assert (load.running, load.waiting, load.free_kv_blocks) == (0, 0, load.total_kv_blocks)
    assert load.mean_output_tokens == pytest.approx(60)
    assert load.prefill_tokens_per_second > 0
    assert 0 < load.step_seconds < 60

    async def counted():  # the board may tell of a request before its record is read
        return (await client.metrics())["headrace_request_e2e_seconds_count"] == load.finishes

    await client.until(counted)
    metrics = await client.metrics()
    assert metrics["headrace_request_ttft_seconds_count"] == load.finishes
    assert metrics["headrace_request_tpot_seconds_count"] == load.finishes
    assert metrics['headrace_slo_requests_total{met="true",set_by="Service",target="TTFT"}'] == load.finishes
    assert metrics['headrace_slo_requests_total{met="false",set_by="Service",target="E2E"}'] == load.finishes
    assert metrics['headrace_lost_records_total{ring="finished"}'] == 0
    traffic = loads(Traffic, await client.text(f"{client.pod.sidecar}/traffic")).windows
    assert sum(window.requests for window in traffic) == load.finishes
    assert sum(window.output_tokens for window in traffic) == 60 * load.finishes
    assert sum(window.met for window in traffic) == 0  # all miss the target of E2E


async def test_vllms_own_metrics_give_nearly_the_same_load(client):
    """What a stock engine's load would be read from is still called so."""
    speed = StockSpeed()

    async def told():
        stock = read_stock_load(await client.text(f"{client.pod.vllm}/metrics"), time.time(), speed)
        return stock.record.running > 0 and stock.record.waiting > 0

    async with client.busy():
        await client.until(told)

    async def alike():
        board = await client.load()
        stock = read_stock_load(await client.text(f"{client.pod.vllm}/metrics"), time.time(), speed)
        return (stock.record.arrivals, stock.record.running) == (board.arrivals, board.running)

    await client.at_rest()
    await client.until(alike)
    board = await client.load()
    stock = read_stock_load(await client.text(f"{client.pod.vllm}/metrics"), time.time(), speed)
    assert (stock.record.block_size, stock.record.total_kv_blocks) == (
        board.block_size,
        board.total_kv_blocks,
    )
    assert stock.record.arrived_tokens == board.arrived_tokens
    assert stock.rates.mean_output_tokens == pytest.approx(board.mean_output_tokens, rel=0.2)
    assert stock.rates.mean_prompt_tokens == pytest.approx(board.mean_prompt_tokens, rel=0.2)
    assert stock.rates.step_seconds > 0
    assert stock.rates.prefill_tokens_per_second > 0
