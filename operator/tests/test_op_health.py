"""The operator's two HTTP ends: its own probes and metrics, and its questions to sidecars."""

from dataclasses import replace

import httpx
import pytest
from aiohttp import web

from headrace_engine.contracts import AppliedPolicy, ContractError, EngineInfo, EngineStatus, dumps
from headrace_operator.run import health, sidecar_status

SIDECAR = "127.9.255.1"  # an address of its own, since the port is fixed
STATUS = EngineStatus("0.1.0", ("FCFS",), 1, EngineInfo("Running"), AppliedPolicy("FCFS", "0" * 16))


@pytest.mark.parametrize("good", [True, False])
async def test_probes_and_metrics(unused_tcp_port, good):
    runner = await health.serve_probes(unused_tcp_port, lambda: good, lambda: not good)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{unused_tcp_port}", trust_env=False) as http:
        codes = {path: (await http.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics")}
        metrics = (await http.get("/metrics")).text
    await runner.cleanup()
    assert codes == {"/healthz": 200 if good else 503, "/readyz": 503 if good else 200, "/metrics": 200}
    assert "headrace_operator_queue_depth" in metrics


async def ask(answer):
    asked = []

    async def handler(request):
        asked.append(request.path)
        return answer

    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, SIDECAR, 9400).start()
    try:
        return await sidecar_status.fetch_status(SIDECAR)
    finally:
        await runner.cleanup()
        assert asked == ["/status"]  # and nothing that the answer names


async def test_a_sidecars_status():
    assert await ask(web.Response(text=dumps(STATUS))) == STATUS


async def test_texts_of_a_status_are_short_and_printable():
    loud = replace(
        STATUS,
        policies=("x" * 400,) * 100,
        engine=EngineInfo("Stock", "line\nline\x1b[2J" + "y" * 400),
        policy=AppliedPolicy(error="z" * 400),
    )
    told = await ask(web.Response(text=dumps(loud)[:-1] + "}"))
    assert told.engine.reason.startswith("lineline[2Jyyy")
    assert max(map(len, (told.engine.reason, told.policy.error, *told.policies))) == 300
    assert len(told.policies) == 64


async def test_what_is_no_status():
    with pytest.raises(ContractError):
        await ask(web.Response(text="{}"))
    with pytest.raises(OSError, match="503"):
        await ask(web.Response(status=503))


async def test_a_redirect_is_not_followed():
    with pytest.raises(OSError, match="its answer has status 302"):
        await ask(web.Response(status=302, headers={"location": f"http://{SIDECAR}:9400/secret"}))


async def test_nobody_there():
    with pytest.raises(OSError, match="Connection refused"):
        await sidecar_status.fetch_status(SIDECAR)


@pytest.mark.parametrize("error", [ContractError("EngineStatus: secret"), TimeoutError("secret")])
async def test_a_condition_quotes_nothing_of_an_answer(error):
    assert "secret" not in sidecar_status._describe_error(error)
