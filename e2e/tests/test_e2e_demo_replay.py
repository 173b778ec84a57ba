"""The replay client against a server that answers, refuses, breaks off or dawdles as it is told."""

import asyncio
import json

import pytest
from aiohttp import web

from e2e.demo import replay
from e2e.demo.replay import Call, Progress

TOGETHER = 4  # requests that the model "together" waits for before it answers the first


@pytest.fixture
async def server():
    """Completions, one token an event; the model's name says what goes wrong."""
    seen = []
    all_there = asyncio.Event()

    async def completions(request):
        body = await request.json()
        seen.append(body)
        if body["model"] == "full":
            return web.json_response({"error": {"message": "queue is full"}}, status=429)
        if len(seen) >= TOGETHER:
            all_there.set()
        if body["model"] == "together":
            await all_there.wait()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        wanted = body["max_tokens"] if body["model"] != "short" else body["max_tokens"] - 1
        for token in range(wanted):
            event = {"choices": [{"text": "x", "token_ids": [token]}]}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        if body["model"] == "broken":
            request.transport.abort()
        await response.write(b'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\n')
        return response

    app = web.Application()
    app.router.add_post("/v1/completions", completions)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}", seen
    await runner.cleanup()


def call(service, at=0.0):
    return Call(at=at, service=service, prompt_tokens=12, output_tokens=5, text_seed=f"{service}{at}")


async def test_each_call_gives_one_sample(server):
    url, seen = server
    progress = Progress()
    samples = await replay.replay(url, [call("chat", 0.05), call("code"), call("chat", 0.01)], progress)
    assert [sample.error for sample in samples] == ["", "", ""]
    assert sorted(sample.service for sample in samples) == ["chat", "chat", "code"]
    assert all(sample.output_tokens == 5 and 0 < sample.ttft <= sample.e2e for sample in samples)
    assert [body["model"] for body in seen] == ["code", "chat", "chat"]
    assert {len(body["prompt"]) for body in seen} == {12}
    assert len({body["prompt"] for body in seen}) == 3
    assert progress.total == 3
    assert not +progress.in_flight


@pytest.mark.parametrize(
    ("service", "said"),
    [("full", "HTTP 429"), ("short", "4 of 5 tokens"), ("broken", "Error")],
)
async def test_a_failure_is_recorded_once(server, service, said):
    url, seen = server
    [sample] = await replay.replay(url, [call(service)], Progress())
    assert said in sample.error
    assert len(seen) == 1


async def test_arrivals_do_not_wait_for_answers(server):
    url, _ = server
    calls = [call("together", at=i / 100) for i in range(TOGETHER)]
    samples = await asyncio.wait_for(replay.replay(url, calls, Progress()), timeout=20)
    assert [sample.error for sample in samples] == [""] * TOGETHER


async def test_stopping_a_replay_leaves_no_request_behind(server):
    url, _ = server
    progress = Progress()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(replay.replay(url, [call("chat"), call("chat", at=30)], progress), timeout=0.3)
    assert not +progress.in_flight
