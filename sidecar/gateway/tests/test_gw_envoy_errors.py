"""Real Envoy, real picker, OpenAI's own client: every error is an OpenAI error, with words that help."""

import asyncio
import contextlib
import functools
import json
import subprocess
import sys

import anthropic
import httpx
import openai
import pytest
from gw_rig import BODY_LIMIT, HERE, chat, until

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(300)]

CHAT = "/v1/chat/completions"
BY_PATH = "/llm/chat/v1/chat/completions"
JSON = {"content-type": "application/json"}

# Path and body; status, code, param and words of the error.
BODIES = [
    (CHAT, b"", 400, "empty_body", None, "is empty"),
    (CHAT, b"[1]", 400, "model_missing", "model", "send a JSON object"),
    (CHAT, b'"hi"', 400, "model_missing", "model", "send a JSON object"),
    (CHAT, b"null", 400, "model_missing", "model", "send a JSON object"),
    (CHAT, b'{"model": null}', 400, "model_missing", "model", "names no model"),
    (CHAT, b'{"model": {"a": 1}}', 400, "model_missing", "model", "names no model"),
    (CHAT, b'{"model": 3}', 404, "model_not_found", "model", "no model `3`"),
    (CHAT, b'{"model": "n\\"b"}', 404, "model_not_found", "model", 'no model `n"b`'),
    (CHAT, b'{"model": "chat"', 400, "invalid_json", None, "cut short"),
    (CHAT, b'{"model": "chat", "prompt": "\\ud83d"}', 400, "invalid_json", None, "pair (\\ud83d)"),
    (CHAT, b'{"model": "\xff"}', 400, "invalid_json", None, "no Unicode text"),
    (CHAT, b'{"model": "chat", "n": 0}', 400, "invalid_choices", "n", "from 1 to 128"),
    (BY_PATH, b"", 400, "empty_body", None, "is empty"),
    (BY_PATH, b"{", 400, "invalid_json", None, "cut short"),
    (BY_PATH, b'{"prompt": "\\ud83d"}', 400, "invalid_json", None, "pair (\\ud83d)"),
    (BY_PATH, b'{"n": 200}', 400, "invalid_choices", "n", "from 1 to 128"),
    ("/llm/none" + CHAT, b"{}", 404, "service_not_found", None, "by the path"),
    ("/v1/audio/speech", b"{}", 404, "path_not_found", None, "no such path"),
]
# The same where only the picker can tell.
PICKERS = [
    (BY_PATH, b"[1]", 400, "invalid_body", None, "not a JSON object"),
    (BY_PATH, b"{}", 400, "invalid_body", None, "no prompt"),
    (BY_PATH, b'{"messages": 3}', 400, "invalid_body", "messages", "not a list of messages"),
    (CHAT, b'{"model": "chat", "prompt": {}}', 400, "invalid_body", "prompt", "token ids"),
    (BY_PATH, b'{"kv_transfer_params": {}}', 400, "invalid_body", "kv_transfer_params", "not for clients"),
    (BY_PATH, b'{"model": "code"}', 400, "invalid_body", None, "no prompt"),
    (
        BY_PATH,
        json.dumps(chat("code")).encode(),
        404,
        "model_not_found",
        "model",
        "another service than llm/chat, which the request names: it has `chat`, `llm/chat`",
    ),
]
# How the official client asks; the error that it raises, its code and param.
CALLS = [
    (lambda c: c.models.retrieve("nobody"), openai.NotFoundError, "model_not_found", "model"),
    (lambda c: c.models.retrieve("llm/none"), openai.NotFoundError, "model_not_found", "model"),
    (lambda c: c.models.delete("chat"), openai.APIStatusError, "method_not_allowed", None),
    (lambda c: c.files.list(), openai.NotFoundError, "path_not_found", None),
    (lambda c: c.responses.retrieve("resp_1"), openai.NotFoundError, "path_not_found", None),
    (
        lambda c: c.completions.create(model="no", prompt="x"),
        openai.NotFoundError,
        "model_not_found",
        "model",
    ),
    (
        lambda c: c.completions.create(model="empty", prompt="x"),
        openai.InternalServerError,
        "no_ready_engine",
        None,
    ),
    (
        lambda c: c.completions.create(model="chat", prompt="x" * BODY_LIMIT),
        openai.APIStatusError,
        "request_too_large",
        None,
    ),
    (
        lambda c: c.completions.create(model="chat", prompt=[]),
        openai.BadRequestError,
        "invalid_body",
        "prompt",
    ),
    (
        lambda c: c.completions.create(model="chat", prompt="x", extra_body={"drop": True}),
        openai.InternalServerError,
        "service_unavailable",
        None,
    ),
]
# Bytes that are no good HTTP, and the status.
LINE = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
WIRE = [
    (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
    (b"FOO /v1/models HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    (b"GET /v1/models HTTP/1.0\r\nhost: x\r\n\r\n", 426),
    (LINE + b"a: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    (LINE + b"".join(b"a%d: x\r\n" % n for n in range(150)) + b"\r\n", 431),
    (LINE + b"transfer-encoding: gzip\r\n\r\n", 501),
    (LINE + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    (LINE + b"content-length: 2\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n{}", 403),
]


@pytest.fixture
async def client(rig):
    async with openai.AsyncOpenAI(base_url=rig.url + "/v1", api_key="sk", max_retries=0) as client:
        yield client


def checked(status, error):
    """An error object, whose shape is right."""
    assert error.keys() == {"message", "type", "param", "code"}, error
    assert isinstance(error["message"], str)
    assert error["message"].strip()
    assert isinstance(error["code"], str | None)
    assert isinstance(error["param"], str | None)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    assert error["type"] == kind
    return error


async def sent(rig, path, body):
    """Status and error object of the answer to a POST."""
    async with httpx.AsyncClient() as http:
        answer = await http.post(rig.url + path, content=body, headers=JSON)
    return answer.status_code, checked(answer.status_code, answer.json()["error"])


@pytest.mark.parametrize("picker", ["alive", "dead"])
async def test_bodies_that_are_refused(rig, session, picker):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine], rig.config("code"): [engine]})
    if picker == "dead":
        rig.kill_picker()
    missed = await rig.missed(session)
    for path, body, status, code, param, words in BODIES + (PICKERS if picker == "alive" else []):
        send = functools.partial(sent, rig, path, body)
        got, error = await (send() if picker == "dead" else rig.in_time(session, send))
        assert (got, error["code"], error["param"]) == (status, code, param), (path, body, error)
        assert words in error["message"]
    assert len(engine.served) <= await rig.missed(session) - missed


async def test_what_the_official_client_raises(rig, session, client):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine], rig.config("empty"): []})

    async def told(call):
        try:
            await call(client)
        except openai.APIStatusError as error:
            return error
        raise AssertionError("served")

    for call, raised, code, param in CALLS:
        caught = await rig.in_time(session, functools.partial(told, call))
        assert isinstance(caught, raised)
        error = checked(caught.status_code, caught.body)
        assert (error["code"], error["param"]) == (code, param), error


async def test_what_anthropics_client_raises(rig, session):
    await rig.apply(session, {rig.config("chat"): [await rig.engine(1)], rig.config("empty"): []})
    said = [{"role": "user", "content": "hi"}]
    async with anthropic.AsyncAnthropic(base_url=rig.url, api_key="none", max_retries=0) as client:
        for model, raised in (("nobody", anthropic.NotFoundError), ("empty", anthropic.InternalServerError)):
            with pytest.raises(raised) as caught:
                await client.messages.create(model=model, messages=said, max_tokens=1)
            assert caught.value.body["type"] == "error"
            checked(caught.value.status_code, caught.value.body["error"])
            with pytest.raises(raised):
                await client.messages.count_tokens(model=model, messages=said)


async def test_models_by_their_names(rig, session, client):
    engine = await rig.engine(1)
    models = ("chat", "org/chat-7B", "a b+c:d@e%f?ü")
    await rig.apply(session, {rig.config("chat", models=models): [engine], rig.config("code"): [engine]})
    for model in (*models, "llm/chat", "llm/code"):
        found = await client.models.retrieve(model)
        assert (found.id, found.object, found.owned_by) == (model, "model", "llm")
    below = client.with_options(base_url=rig.url + "/llm/chat/v1")
    assert [each.id async for each in below.models.list()] == sorted([*models, "llm/chat"])
    assert (await below.models.retrieve("org/chat-7B")).id == "org/chat-7B"
    with pytest.raises(openai.NotFoundError):
        await below.models.retrieve("code")
    for path in ("/v1/models/org/chat-7B", "/v1/models/org%2Fchat-7B", "/v1/models/org%2fchat-7B?x=1"):
        async with httpx.AsyncClient() as http:
            assert (await http.get(rig.url + path)).json()["id"] == "org/chat-7B"


async def test_other_methods(rig, session):
    await rig.apply(session, {rig.config("chat"): []})
    paths = [
        f"{service}{path}" for service in ("", "/llm/chat") for path in ("/v1/models", "/v1/models/chat")
    ]
    async with httpx.AsyncClient(base_url=rig.url) as http:
        for path in paths:
            head, whole = await http.head(path), await http.get(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == whole.headers["content-length"]
            for method in ("POST", "PUT", "DELETE", "OPTIONS"):
                refused = await http.request(method, path)
                checked(405, refused.json()["error"])
                assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        for path in (CHAT, BY_PATH):
            refused = await http.get(path)
            checked(405, refused.json()["error"])
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(("data", "status"), WIRE)
async def test_no_good_http(rig, session, data, status):
    await rig.apply(session, {rig.config("chat"): []})
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
    writer.write(data)
    head, _, body = (await reader.readuntil(b'"error"}')).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    checked(status, json.loads(body)["error"])
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.vllm
async def test_errors_of_vllm(rig, session, client):
    """Its real API server, which needs no engine for what it refuses."""
    with vllm_without_engine(rig) as address:
        await until(lambda: listens(address, rig.engine_port), "vLLM's API server is up", 240)
        rig.write_catalog({rig.config("chat"): [address]})
        await until(lambda: routed(client), "it is routed to")
        for path, body, status, param, words in (
            ("/embeddings", {"input": "x"}, 404, None, "do not serve this path"),
            ("/chat/completions", chat("chat", temperature="hot"), 400, "body.temperature", "valid number"),
            ("/completions", {"prompt": "x", "max_tokens": "é"}, 400, "body.max_tokens", "'input': 'é'"),
            ("/chat/completions", chat("chat"), 500, None, "has no attribute"),
        ):
            with pytest.raises(openai.APIStatusError) as caught:
                await client.post(path, cast_to=object, body={"model": "chat", **body})
            error = checked(caught.value.status_code, caught.value.body)
            assert (caught.value.status_code, error["param"]) == (status, param), error
            assert words in error["message"]


@contextlib.contextmanager
def vllm_without_engine(rig):
    """Address of vLLM's API server."""
    address = "127.0.99.1"
    command = [sys.executable, HERE / "gw_vllm_errors.py", address, str(rig.engine_port)]
    with (rig.folder / "vllm.log").open("wb") as log, subprocess.Popen(command, stderr=log) as vllm:
        try:
            yield address
        finally:
            vllm.terminate()
            vllm.wait(60)


async def listens(address, port):
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


async def routed(client):
    """Whether the gateway has an engine for the model."""
    try:
        await client.post("/embeddings", cast_to=object, body={"model": "chat", "input": "x"})
    except openai.APIStatusError as error:
        return error.code == "path_not_served"
