"""Real Envoy, real picker: which service a request reaches, and the shape of every refusal."""

import asyncio
import io
import json

import pytest
from gw_rig import BODY_LIMIT, chat, posted, until

from headrace_engine.contracts import PerRequest, Slo
from headrace_engine.contracts.request_overrides import parse_request_id

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(240)]

CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


async def refusal(rig, session, path=CHAT, *, method="POST", **request):
    """Send a request that must be refused: status, error code, and the headers."""
    async with session.request(method, rig.url + path, **request) as response:
        assert response.content_type == "application/json"
        body = await response.json()
    error = body["error"]
    assert body["type"] == "error"  # as Anthropic's are
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return response.status, error["code"], response.headers


@pytest.mark.parametrize("picker", ["alive", "dead"])
async def test_model_path_and_header_reach_their_service(rig, session, picker):
    a, b = await rig.engine(1), await rig.engine(2)
    await rig.apply(session, {rig.config("chat"): [a], rig.config("code", models=("code", "coder")): [b]})
    if picker == "dead":
        rig.kill_picker()

    async def engine(path, body, headers=None):
        status, answer = await posted(session, rig.url + path, body, headers)
        assert status == 200, answer
        return answer["engine"]

    assert await engine(CHAT, chat("chat")) == a.address
    assert await engine(CHAT, chat("coder")) == b.address
    assert await engine(CHAT, chat("llm/code")) == b.address
    assert await engine("/v1/completions", {"model": "chat", "prompt": "hi"}) == a.address
    assert await engine("/llm/code/v1/completions?x=1", {"prompt": "hi"}) == b.address
    assert b.served[-1]["path"] == "/v1/completions?x=1"
    assert await engine(CHAT, chat("any"), {"x-headrace-service": "llm/chat"}) == a.address
    assert (await refusal(rig, session, json=chat("nobody")))[:2] == (404, "model_not_found")
    async with session.get(rig.url + "/v1/models") as response:
        listed = [model["id"] for model in (await response.json())["data"]]
    assert listed == ["chat", "code", "coder", "llm/chat", "llm/code"]
    async with session.get(rig.url + "/llm/code/v1/models") as response:
        listed = [model["id"] for model in (await response.json())["data"]]
    assert listed == ["code", "coder", "llm/code"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/embeddings", {"input": "hi"}),
        ("/v1/responses", {"input": "hi"}),
        *((path, {"query": "a", "documents": ["b"]}) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
        *((path, {"queries": "a", "documents": ["b"]}) for path in ("/score", "/v1/score")),
    ],
)
async def test_whatever_engines_serve_reaches_them(rig, session, path, body):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine]})
    assert (await posted(session, rig.url + path, {**body, "model": "chat"}))[0] == 200
    assert (await posted(session, f"{rig.url}/llm/chat{path}", body))[0] == 200
    assert [each["path"] for each in engine.served] == [path, path]
    assert (await refusal(rig, session, path, method="GET"))[:2] == (405, "method_not_allowed")


async def test_the_gateway_says_that_it_is_there(rig, session):
    await rig.apply(session, {rig.config("chat"): []})
    async with session.get(rig.url + "/health") as response:
        assert (response.status, await response.text()) == (200, "")


async def test_long_headers_and_paths_pass_the_picker(rig, session):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine]})
    key = {"authorization": "Bearer " + "k" * 9000, "x-other": "z" * 9000}

    async def picked():
        before = await rig.metric(session, "headrace_gateway_picks_total")
        status, _ = await posted(session, rig.url + CHAT + "?x=" + "y" * 9000, chat("chat"), key)
        assert status == 200
        return await rig.metric(session, "headrace_gateway_picks_total") - before

    assert await rig.in_time(session, picked) == 1


async def test_refusals(rig, session):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine], rig.config("empty"): []})

    async def code(path=CHAT, **request):
        return (await refusal(rig, session, path, **request))[:2]

    assert await code(data=b"{", headers=JSON) == (400, "invalid_json")
    assert await code(data=json.dumps(chat("chat")), headers={"content-type": "text/plain"}) == (
        415,
        "unsupported_media_type",
    )
    assert await code(json={"messages": []}) == (400, "model_missing")
    missed = await rig.missed(session)
    for told in (
        lambda: code(json={"model": "chat"}),
        lambda: code("/llm/chat" + CHAT, data=b"[]", headers=JSON),
    ):
        assert await rig.in_time(session, told) == (400, "invalid_body")
    assert await code(json=chat('no"such\n')) == (404, "model_not_found")
    assert await code(json=chat("chat"), headers={"x-headrace-service": "llm/none"}) == (
        404,
        "service_not_found",
    )
    assert await code(method="GET") == (405, "method_not_allowed")
    too_large = io.BytesIO(json.dumps(chat("chat", "x" * BODY_LIMIT)).encode())
    assert await code(data=too_large, headers=JSON) == (413, "request_too_large")
    assert await code("/v1/chat%2fcompletions", json=chat("chat")) == (404, "path_not_found")
    assert await code(json=chat("empty")) == (503, "no_ready_engine")
    assert (await refusal(rig, session, json=chat("empty")))[2]["retry-after"] == "5"
    assert len(engine.served) <= await rig.missed(session) - missed


async def test_no_engine_without_the_picker_is_a_503_of_the_same_shape(rig, session):
    await rig.apply(session, {rig.config("empty"): []})
    rig.kill_picker()
    status, code, headers = await refusal(rig, session, json=chat("empty"))
    assert (status, code, headers["retry-after"]) == (503, "no_ready_engine", "5")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/metrics"),
        ("POST", "/v1/load_lora_adapter"),
        ("POST", "/llm/chat/reset_prefix_cache"),
        ("POST", "/llm/chat/v1/../sleep"),
        ("POST", "/v1/chat/completions/render"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/"),
    ],
)
async def test_nothing_else_reaches_an_engine(rig, session, method, path):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine]})
    assert (await refusal(rig, session, path, method=method, json=chat("chat")))[:2] == (
        404,
        "path_not_found",
    )
    assert engine.served == []


async def test_headers_of_the_gateways_own_parts_are_stripped(rig, session):
    chosen, other = await rig.engine(1), await rig.engine(2)
    await rig.apply(session, {rig.config("chat"): [chosen], rig.config("code"): [other]})
    spoofed = {
        "x-gateway-destination-endpoint": f"{other.address}:{other.port}",
        "x-envoy-retry-on": "5xx",
        "x-envoy-max-retries": "5",
        "X-Vllm-Priority": "9",
        "x-data-parallel-rank": "1",
        "x-headrace-priority": "9",
        "x-headrace-ttft-ms": "1",
        "x-headrace-service": "llm/chat",
        "x-mine": "kept",
    }
    status, _answer = await posted(session, rig.url + CHAT, chat("chat"), spoofed)
    assert status == 200
    arrived = {name.lower(): value for name, value in chosen.served[0]["headers"].items()}
    assert arrived["x-mine"] == "kept"
    assert not arrived.keys() & {name.lower() for name in spoofed} - {"x-mine"}
    assert other.served == []


async def test_what_clients_ask_for_reaches_engines_in_the_requests_id(rig, session):
    open_, closed = await rig.engine(1), await rig.engine(2)
    asking = rig.config("chat", slo=Slo(ttft_ms=500, per_request=PerRequest()))
    await rig.apply(session, {asking: [open_], rig.config("code"): [closed]})
    wanted = {"x-headrace-ttft-ms": "250", "X-Headrace-Output-Tokens": "8" * 99}
    for model in ("chat", "code"):
        assert (await posted(session, rig.url + CHAT, chat(model), wanted))[0] == 200
    assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200
    ids = [{k.lower(): v for k, v in each["headers"].items()} for each in (*open_.served, *closed.served)]
    told = [parse_request_id("chatcmpl-" + each["x-request-id"]) for each in ids]
    assert told == [{"headrace_ttft_ms": "250", "headrace_output_tokens": "8" * 16}, {}, {}]
    assert not any(name.startswith("x-headrace-") for each in ids for name in each)


async def test_a_prompt_is_never_sent_twice(rig, session):
    """An engine that answers 500 or 503 has seen the prompt; so may one that drops the connection."""
    engines = [await rig.engine(number) for number in (1, 2, 3)]
    await rig.apply(session, {rig.config("chat"): engines})
    for status in (500, 503):
        assert (await posted(session, rig.url + CHAT, chat("chat", answer_status=status)))[0] == status
    assert (await refusal(rig, session, json=chat("chat", drop=True)))[:2] == (503, "service_unavailable")
    assert sum(len(engine.served) for engine in engines) == 3


async def test_overload_is_a_429_with_retry_after(rig, session):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("busy", max_queue_ms=1000): [engine]})
    assert (await posted(session, rig.url + CHAT, chat("busy")))[0] == 200
    engine.load(waiting_prefill_tokens=55_000)  # 5.5 s at its 10,000 tokens a second

    async def refused():
        async with session.post(rig.url + CHAT, json=chat("busy")) as response:
            return response.status == 429 and (response.headers["retry-after"], await response.json())

    retry_after, body = await until(refused, "the gateway sheds load")
    assert retry_after == "5"
    assert body["error"]["code"] == "overloaded"
    assert body["error"]["type"] == "rate_limit_error"


async def test_the_picker_chooses_and_its_balancer_changes_live(rig, session):
    a, b = await rig.engine(1), await rig.engine(2)
    a.load(waiting=5, waiting_prefill_tokens=90_000)
    await rig.apply(session, {rig.config("chat", balancer="SAL"): [a, b]})

    async def served(count):
        before = len(a.served), len(b.served)
        for _ in range(count):
            assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200
        return len(a.served) - before[0], len(b.served) - before[1]

    assert await rig.in_time(session, lambda: served(10)) == (0, 10)
    rig.write_catalog({rig.config("chat", balancer="RoundRobin"): [a.address, b.address]})

    async def alternates():
        return await served(2) == (1, 1)

    await until(alternates, "round robin is in force")
    assert await rig.in_time(session, lambda: served(10)) == (5, 5)


async def test_large_bodies_pass(rig, session):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine]})
    body = json.dumps(chat("chat", "x" * (BODY_LIMIT - 1000))).encode()

    async def chunks():
        for start in range(0, len(body), 10_000):
            yield body[start : start + 10_000]
            await asyncio.sleep(0)

    async with session.post(rig.url + CHAT, data=chunks(), headers=JSON) as response:
        assert response.status == 200, await response.text()
    assert engine.served[0]["bytes"] == len(body)


async def test_two_hundred_services(rig, session):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config(f"model-{number}"): [engine] for number in range(200)})
    for number in (0, 117, 199):
        assert (await posted(session, rig.url + CHAT, chat(f"model-{number}")))[0] == 200
        assert (await posted(session, f"{rig.url}/llm/model-{number}{CHAT}", chat("any")))[0] == 200
