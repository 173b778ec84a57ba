"""Real Envoy with API keys: who may use a service, what they see of it, and how often they may ask."""

import asyncio
import json
import time

import aiohttp
import openai
import pytest
from gw_rig import Rig, chat, posted, until

from headrace_gateway.catalog import Catalog, Service
from headrace_gateway.xds.credentials import api_keys_document
from headrace_gateway.xds.generation_cache import GenerationCache
from headrace_gateway.xds.snapshot import ROUTES, build_snapshot

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(240)]

CHAT = "/v1/chat/completions"
CLIENTS = ("search", "support", "search.*")


class KeyRig(Rig):
    """An Envoy that asks for API keys: each client's is `sk-` and its name."""

    def __init__(self, folder):
        super().__init__(folder)
        file = folder / "keys" / "api-keys.json"
        file.parent.mkdir()
        file.write_text(json.dumps(api_keys_document([(f"sk-{name}", name) for name in CLIENTS])))
        self.settings = {"api_keys": str(file)}

    async def _has(self, session, services):
        """Whether Envoy's routes are those of these services: no client is listed all of them."""
        catalog = Catalog.build(
            [Service(config, tuple(each.address for each in engines)) for config, engines in services.items()]
        )
        url = f"http://127.0.0.1:{self.admin_port}/config_dump?resource=dynamic_route_configs"
        try:
            async with session.get(url) as response:
                return build_snapshot(catalog, GenerationCache())[ROUTES].version in await response.text()
        except aiohttp.ClientError:
            return False


RIG = KeyRig


@pytest.fixture
async def session():
    headers = {"authorization": "Bearer sk-search"}
    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=120)) as session:
        yield session


def bearing(client):
    return {"authorization": f"Bearer sk-{client}"}


async def asked(rig, session, client, path=CHAT, model="chat", **headers):
    """Status and error code of a chat request of this client."""
    status, answer = await posted(session, rig.url + path, chat(model), {**bearing(client), **headers})
    return status, answer.get("error", {}).get("code")


async def passes(limit, *requests):
    """Send them at once: so many a minute pass, more only as time goes by, and all others are refused."""
    began = time.monotonic()
    found = await asyncio.gather(*requests)
    most = limit * (1 + (time.monotonic() - began) / 60) + 1
    assert limit <= found.count((200, None)) <= most
    assert set(found) == {(200, None), (429, "rate_limit_exceeded")}


async def seen(rig, client, below=""):
    """The models that a client is told of, each by itself too."""
    async with openai.AsyncOpenAI(
        base_url=f"{rig.url}{below}/v1", api_key=f"sk-{client}", max_retries=0
    ) as sdk:
        listed = [model.id async for model in sdk.models.list()]
        for model in listed:
            assert (await sdk.models.retrieve(model)).id == model
        for model in {"chat", "code", "open"} - set(listed):
            with pytest.raises(openai.NotFoundError):
                await sdk.models.retrieve(model)
        return listed


async def test_only_those_allowed_reach_a_service(rig, session):
    engine = await rig.engine(1)
    await rig.apply(
        session,
        {
            rig.config("chat", allowed_clients=("search",)): [engine],
            rig.config("code", allowed_clients=("search.*", "search")): [engine],
            rig.config("open"): [engine],
        },
    )
    ways = [
        (CHAT, "chat", {}),
        (f"/llm/chat{CHAT}", "chat", {}),
        (CHAT, "chat", {"x-headrace-service": "llm/chat"}),
    ]
    forged = {"x-headrace-client": "search"}
    for path, model, headers in ways:
        assert await asked(rig, session, "search", path, model, **headers) == (200, None)
        for client in ("support", "search.*"):
            refused = await asked(rig, session, client, path, model, **headers, **forged)
            assert refused == (403, "access_denied")
    assert await asked(rig, session, "search.*", model="code") == (200, None)
    assert await asked(rig, session, "support", model="open") == (200, None)
    assert len(engine.served) == 5


async def test_a_list_has_what_the_client_may_use(rig, session):
    await rig.apply(
        session,
        {
            rig.config("chat", allowed_clients=("search",)): [],
            rig.config("code", allowed_clients=("support", "search")): [],
            rig.config("open"): [],
        },
    )
    assert await seen(rig, "search") == ["chat", "code", "llm/chat", "llm/code", "llm/open", "open"]
    assert await seen(rig, "support") == ["code", "llm/code", "llm/open", "open"]
    assert await seen(rig, "search.*") == ["llm/open", "open"]
    assert await seen(rig, "search", "/llm/chat") == ["chat", "llm/chat"]
    with pytest.raises(openai.NotFoundError):
        await seen(rig, "support", "/llm/chat")


async def test_requests_beyond_a_limit_get_a_429(rig, session):
    engine = await rig.engine(1)
    await rig.apply(
        session,
        {
            rig.config("chat", requests_per_minute_per_client=4): [engine],
            rig.config("code", requests_per_minute=6): [engine],
            rig.config("open"): [engine],
        },
    )
    ways = [
        (CHAT, "chat"),
        (f"/llm/chat{CHAT}", "chat"),
        (CHAT, "llm/chat"),
        (f"/llm/chat{CHAT}", "llm/chat"),
    ]
    for client in ("search", "support"):
        await passes(4, *(asked(rig, session, client, path, model) for path, model in ways * 4))
    await passes(6, *(asked(rig, session, CLIENTS[n % 3], model="code") for n in range(20)))
    assert {(await asked(rig, session, "search", model="open"))[0] for _ in range(20)} == {200}

    async def refused():
        async with session.post(rig.url + CHAT, json=chat("chat")) as response:
            return response.status == 429 and (response.headers["retry-after"], await response.json())

    retry_after, body = await until(refused, "the next one is refused")
    assert retry_after == "15"
    assert (body["error"]["type"], body["error"]["param"]) == ("rate_limit_error", None)
    assert "llm/chat" in body["error"]["message"]


async def test_what_a_limit_lets_through_comes_back_second_by_second(rig, session):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat", requests_per_minute=60): [engine]})
    await passes(60, *(asked(rig, session, "search") for _ in range(200)))

    async def again():
        return (await asked(rig, session, "search"))[0] == 200

    await until(again, "a second later the next one passes")
