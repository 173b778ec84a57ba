"""The gateway's key is made once, kept, followed when it changes, and never in the operator's way."""

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from op_memory import Memory, operator, with_service

from headrace_engine.contracts import loads
from headrace_engine.contracts.resume_arguments import ResumeKey
from headrace_operator.api import Key
from headrace_operator.errors import ApiError
from headrace_operator.run.gateway_key import GatewayKey

NAME = ("Secret", "gateway-key")
PASSWORD = serialization.BestAvailableEncryption(b"word")


def new_key():
    return GatewayKey("system", "gateway-key")


def pem(key, encryption=None):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        encryption or serialization.NoEncryption(),
    )


def put(memory, data):
    encoded = {file: base64.b64encode(content).decode() for file, content in data.items()}
    metadata = {"namespace": "system", "name": "gateway-key"}
    memory.store({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})


async def test_one_is_made_where_there_is_none_and_the_next_process_finds_it():
    memory, key, later = Memory(), new_key(), new_key()
    assert await key.refresh(memory)
    assert await later.refresh(memory)
    assert key.modulus == later.modulus
    assert len(key.modulus) == 512
    assert not await key.refresh(memory)
    assert memory.writes == [("write", *NAME)]
    assert memory.objects[NAME]["metadata"]["namespace"] == "system"


async def test_another_key_is_followed_and_one_that_was_deleted_is_made_anew():
    memory, key = Memory(), new_key()
    await key.refresh(memory)
    first = key.modulus
    other = rsa.generate_private_key(65537, 3072)
    put(memory, {"private-key.pem": pem(other)})
    assert await key.refresh(memory)
    assert int(key.modulus, 16) == other.public_key().public_numbers().n
    del memory.objects[NAME]
    assert await key.refresh(memory)
    assert key.modulus != first


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "has no private-key.pem"),
        ({"private-key.pem": b"-----BEGIN"}, "is no RSA key of 2048 bits or more in PEM"),
        ({"private-key.pem": b""}, "is no RSA key"),
        ({"private-key.pem": pem(rsa.generate_private_key(65537, 1024))}, "is no RSA key"),
        ({"private-key.pem": pem(ec.generate_private_key(ec.SECP256R1()))}, "is no RSA key"),
        ({"private-key.pem": pem(rsa.generate_private_key(65537, 2048), PASSWORD)}, "is no RSA key"),
        ({"private-key.pem": pem(rsa.generate_private_key(3, 2048))}, "the public exponent is 3, not 65537"),
    ],
)
async def test_what_is_no_key_is_said_once_with_the_remedy_and_the_last_one_stays(data, problem, caplog):
    memory, key = Memory(), new_key()
    await key.refresh(memory)
    before = key.modulus
    put(memory, data)
    for _ in range(2):
        assert not await key.refresh(memory)
    assert key.modulus == before
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith("the gateway's key, Secret system/gateway-key: ")
    assert problem in said
    assert said.endswith(": delete the Secret, and the operator makes another")


async def test_a_right_that_is_missing_is_said_and_stops_nothing(caplog):
    class Forbidding(Memory):
        async def create(self, manifest):
            raise ApiError(403, "secrets is forbidden")

    key = new_key()
    assert not await key.refresh(Forbidding())
    assert key.modulus == ""
    assert "secrets is forbidden" in caplog.text


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_outage_is_the_callers_and_the_next_try_finds_one_key(call, when):
    memory, key = Memory(), new_key()
    memory.fail(call, when)
    with pytest.raises(ApiError):
        await key.refresh(memory)
    assert await key.refresh(memory)
    assert memory.writes == [("write", *NAME)]


async def test_engines_get_the_public_half_by_the_config_map_of_their_service():
    memory = with_service()
    await operator(memory).reconcile(Key("llm", "chat"))
    assert memory.objects["ConfigMap", "chat-policy"]["data"].keys() == {"policy.json"}
    template = memory.objects["Deployment", "chat"]["spec"]["template"]
    later = operator(memory)
    await later.gateway_key.refresh(Memory())
    await later.reconcile(Key("llm", "chat"))
    told = loads(ResumeKey, memory.objects["ConfigMap", "chat-policy"]["data"]["resume-key.json"])
    assert told == ResumeKey("llm/chat", later.gateway_key.modulus)
    assert memory.objects["Deployment", "chat"]["spec"]["template"] == template
