"""The load of an engine with vLLM's own scheduler, read from metrics as vLLM writes them."""

import asyncio
import contextlib
import time

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from sc_fake_engine import FakeEngine

from headrace_engine.control.paths import stats_paths
from headrace_sidecar import probe
from headrace_sidecar.estimates import Rates
from headrace_sidecar.monitor import Monitor
from headrace_sidecar.state import SILENT_AFTER
from headrace_sidecar.stock import read_stock_load
from headrace_sidecar.stock_speed import StockSpeed

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a, {b}"} 3.0
vllm:num_requests_waiting{engine="0",model_name="a, {b}"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="401",num_gpu_blocks_override="7"} 1.0
vllm:num_preemptions_total{engine="0",model_name="m"} 5.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.79e+09
vllm:prompt_tokens_total{engine="0",model_name="m"} 1500.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 6.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
vllm:request_prompt_tokens_sum{engine="0",model_name="m"} 1000.0
vllm:request_prompt_tokens_count{engine="0",model_name="m"} 10.0
vllm:request_prompt_tokens_bucket{engine="0",le="1.0",model_name="m"} 0.0
vllm:request_generation_tokens_sum{engine="0",model_name="m"} 400.0
vllm:request_generation_tokens_count{engine="0",model_name="m"} 10.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="m"} 0.5
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 8.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 400.0
http_requests_total{handler="/v1/completions"} 10.0
"""


def test_the_load_is_read_and_estimated():
    load = read_stock_load(PAGE, 5.0, StockSpeed())
    record = load.record
    assert (record.time, record.running, record.waiting, record.preemptions) == (5.0, 3, 2, 5)
    assert (record.total_kv_blocks, record.free_kv_blocks, record.block_size) == (400, 300, 16)
    assert (record.waiting_prefill_tokens, record.waiting_kv_blocks) == (200, 13)
    assert (record.arrivals, record.finishes, record.arrived_tokens) == (15, 10, 1700)
    assert load.rates == Rates(3000.0, 0.02, 100.0, 40.0)


HOSTILE = [
    "",
    "not metrics",
    "vllm:num_requests_running NaN",
    "vllm:x{} +Inf",
    "vllm:num_requests_running 1e308\nvllm:num_requests_running 1e308",
    "vllm:num_requests_running -1",
    'vllm:cache_config_info{num_gpu_blocks="' + "9" * 5000 + '"} 1',
    "vllm:request_prompt_tokens_sum 1e308\nvllm:request_prompt_tokens_count 5e-324",
]


@pytest.mark.parametrize(
    "page", ["", "not metrics", "vllm:num_requests_running NaN", "vllm:x{} +Inf", *HOSTILE]
)
def test_what_the_page_lacks_is_nothing(page):
    load = read_stock_load(page, 5.0, StockSpeed())
    assert (load.record.running, load.record.total_kv_blocks, load.rates) == (0, 0, Rates())


@given(st.text())
def test_any_page_is_survived(text):
    speed = StockSpeed()
    read_stock_load(text, 0.0, speed)
    read_stock_load(f"vllm:{text} 1", 1.0, speed)


@pytest.fixture
async def vllm():
    """A server that answers as vLLM's does; `page` may be changed."""

    async def health(_):
        return web.Response()

    async def metrics(_):
        return web.Response(text=PAGE)

    async with serving(health, metrics) as url:
        yield url


@contextlib.asynccontextmanager
async def serving(health, metrics):
    """The URL of a server with these two pages."""
    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 what is waited for has no event
            await asyncio.sleep(0.01)


@pytest.fixture
async def ask(monkeypatch):
    """Starts asking, and waits until a condition holds."""
    monkeypatch.setattr(probe, "INTERVAL", 0.01)
    tasks = []

    async def ask(monitor, url, condition):
        tasks.append(asyncio.create_task(probe.keep_probing(monitor, url)))
        await until(condition)

    yield ask
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_stock_engine_serves_with_its_load(tmp_path, vllm, ask):
    engine = FakeEngine(tmp_path, mode="Stock", reason="--scheduler-cls was given")
    monitor = Monitor(stats_paths(tmp_path), lambda _: None)
    monitor.observe(1.0)
    assert not monitor.load.serving
    await ask(monitor, vllm, lambda: monitor.stock is not None)
    monitor.observe(2.0)
    load = monitor.load
    assert (load.serving, load.running, load.free_kv_blocks, load.mean_output_tokens) == (True, 3, 300, 40)
    assert (load.boot, monitor.engine.reason) == (engine.board.boot, "--scheduler-cls was given")
    assert abs(load.time - time.time()) < 60
    engine.close()


async def test_an_engine_whose_plugin_is_silent_serves_too(tmp_path, vllm, ask):
    monitor = Monitor(stats_paths(tmp_path), lambda _: None)
    monitor.observe(1.0)
    await ask(monitor, vllm, lambda: monitor.answering)
    monitor.observe(2.0)
    assert monitor.engine.state == "Starting"
    assert monitor.stock is None
    monitor.observe(2.0 + SILENT_AFTER)
    assert monitor.engine.state == "Stock"
    assert not monitor.load.serving
    await until(lambda: monitor.stock is not None)
    monitor.observe(3.0 + SILENT_AFTER)
    assert monitor.load.serving


async def test_an_engine_that_reports_is_not_asked(tmp_path, vllm, ask):
    engine = FakeEngine(tmp_path)
    engine.report()
    monitor = Monitor(stats_paths(tmp_path), lambda _: None)
    monitor.observe(1.0)
    monitor.answering = True
    await ask(monitor, vllm, lambda: not monitor.answering)
    assert monitor.stock is None
    engine.close()


async def test_a_server_that_is_not_there_is_not_healthy(tmp_path, ask):
    monitor = Monitor(stats_paths(tmp_path), lambda _: None)
    monitor.answering = True
    await ask(monitor, "http://127.0.0.1:9", lambda: not monitor.answering)
    assert await probe.get_page("http://127.0.0.1:9", "/health") is None


async def test_a_server_that_floods_or_sends_elsewhere_is_not_listened_to(vllm):
    async def elsewhere(_):
        raise web.HTTPFound(f"{vllm}/health")

    async def flood(request):
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"vllm:num_requests_running 1\n" * 4096)
        return response

    assert await probe.get_page(vllm, "/health") == ""
    async with serving(elsewhere, flood) as url:
        assert await probe.get_page(url, "/health") is None
        assert await probe.get_page(url, "/metrics", probe.MOST_METRICS_BYTES) is None
