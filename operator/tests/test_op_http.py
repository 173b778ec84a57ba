"""The operator's two HTTP ends: its own probes and metrics, and its questions to sidecars."""

import httpx
import pytest
from aiohttp import web

from headrace_engine.contracts import AppliedPolicy, ContractError, EngineInfo, EngineStatus, dumps
from headrace_operator import health
from headrace_operator.engines import HttpStatusClient

SIDECAR = "127.9.255.1"  # an address of its own, since the port is fixed
STATUS = EngineStatus("0.1.0", ("FCFS",), 1, EngineInfo("Running"), AppliedPolicy("FCFS", "0" * 16))


@pytest.mark.parametrize("good", [True, False])
async def test_probes_and_metrics(unused_tcp_port, good):
    runner = await health.serve(unused_tcp_port, lambda: good, lambda: not good)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{unused_tcp_port}", trust_env=False) as http:
        codes = {path: (await http.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics")}
        metrics = (await http.get("/metrics")).text
    await runner.cleanup()
    assert codes == {"/healthz": 200 if good else 503, "/readyz": 503 if good else 200, "/metrics": 200}
    assert "headrace_operator_queue_depth" in metrics


async def ask(answer):
    async def handler(_):
        return answer

    app = web.Application()
    app.router.add_get("/status", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, SIDECAR, 9400).start()
    client = HttpStatusClient()
    try:
        return await client.status(SIDECAR)
    finally:
        await client.close()
        await runner.cleanup()


async def test_a_sidecars_status():
    assert await ask(web.Response(text=dumps(STATUS))) == STATUS


async def test_what_is_no_status():
    with pytest.raises(ContractError):
        await ask(web.Response(text="{}"))
    with pytest.raises(OSError, match="503"):
        await ask(web.Response(status=503))


async def test_nobody_there():
    client = HttpStatusClient()
    with pytest.raises(OSError, match=SIDECAR):
        await client.status(SIDECAR)
    await client.close()
