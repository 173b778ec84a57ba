"""Routing on a real Envoy with a real picker: which service a request reaches, and what is refused."""

import pytest

pytestmark = pytest.mark.envoy
CHAT = "/v1/chat/completions"


def chat(model=None, text="hello", **extra):
    return {
        **({"model": model} if model is not None else {}),
        "messages": [{"role": "user", "content": text}],
        **extra,
    }


async def test_model_path_and_header_reach_their_service(rig, session):
    a, b = await rig.engine(1), await rig.engine(2)
    await rig.apply(session, {rig.config("chat"): [a], rig.config("code"): [b]})

    async def reached(path, body, headers=None):
        async with session.post(rig.url + path, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            return (await response.json())["engine"]

    assert await reached(CHAT, chat("chat")) == a.address
    assert await reached(CHAT, chat("code")) == b.address
    assert await reached(CHAT, chat("llm/code")) == b.address
    assert await reached("/llm/code" + CHAT, chat("code")) == b.address
    assert await reached(CHAT, chat("code"), {"x-headrace-service": "llm/chat"}) == a.address
