"""Long and intricate prompts are read elsewhere: which, with what result, and in whose turn."""

import asyncio

import orjson
import pytest

from headrace_gateway.pick import prompt_reader
from headrace_gateway.pick.prompt_reader import MOST_WAITING, PromptReader, ReaderBusyError, takes_long
from headrace_gateway.pick.tokens import BadRequestError, read_prompt

MESSAGE = {"role": "user", "content": "x"}
IDS = orjson.dumps({"prompt": list(range(100_000))})


def chat(*messages, **others):
    return orjson.dumps({"messages": messages, **others})


@pytest.fixture
async def reader(monkeypatch):
    """A reader with all the time that a busy machine takes."""
    monkeypatch.setattr(prompt_reader, "READ_SECONDS", 60.0)
    async with PromptReader() as made:
        yield made


@pytest.mark.parametrize(
    "body",
    [
        IDS,
        chat(*[MESSAGE] * 2000),
        chat(*[{}] * 2000),
        chat({"role": "user", "content": [{"type": "text", "text": "a"}] * 1000}),
        chat(MESSAGE, tools=[{"type": "function"}] * 1000),
        chat({"role": "user", "content": "x" * 1_000_000}),
        chat(MESSAGE, other={str(key): key for key in range(20_000)}),
        chat(MESSAGE, other=[[]] * 20_000),
    ],
    ids=["ids", "messages", "empty messages", "parts", "tools", "text", "keys", "lists"],
)
def test_what_takes_long_is_seen_beforehand(body):
    assert takes_long(body)


@pytest.mark.parametrize(
    "body",
    [
        chat(*[{"role": "user", "content": "word " * 80}] * 200),
        chat({"role": "user", "content": "word, " * 1000}),
        orjson.dumps({"prompt": list(range(8000))}),
        b"{" * 4000,
    ],
    ids=["chat", "text", "ids", "short"],
)
def test_the_rest_is_read_at_once(body):
    assert not takes_long(body)


async def test_a_prompt_is_measured_as_on_the_loop_and_so_is_what_is_wrong_with_it(reader):
    measured, own = await reader.read("llm/chat", IDS), read_prompt(IDS)
    assert (measured, measured.beginning()) == (own, own.beginning())
    with pytest.raises(BadRequestError, match="not a list of messages") as refused:
        await reader.read("llm/chat", b'{"messages": [1]}')
    assert refused.value.param == "messages"


async def test_the_loop_goes_on_while_a_prompt_is_read(reader):
    await reader.read("llm/chat", b'{"prompt": "x"}')  # the process is there
    reading = asyncio.create_task(reader.read("llm/chat", orjson.dumps({"prompt": [1] * 1_000_000})))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 100


async def test_services_take_turns(reader):
    finished = []

    async def read(service):
        await reader.read(service, IDS)
        finished.append(service)

    async with asyncio.TaskGroup() as group:
        for service in ("a", "a", "a", "b", "c"):
            group.create_task(read(service))
    assert finished[:3] == ["a", "b", "c"]


async def test_each_service_has_few_that_wait(reader):
    reads = [asyncio.create_task(reader.read("llm/chat", IDS)) for _ in range(MOST_WAITING + 3)]
    other = asyncio.create_task(reader.read("llm/other", IDS))
    done = await asyncio.gather(*reads, other, return_exceptions=True)
    assert [type(each) for each in done[MOST_WAITING:-1]] == [ReaderBusyError] * 3
    assert not any(isinstance(each, Exception) for each in (*done[:MOST_WAITING], done[-1]))


async def test_what_is_not_read_in_time_is_refused(reader, monkeypatch):
    monkeypatch.setattr(prompt_reader, "READ_SECONDS", 0.0)
    with pytest.raises(ReaderBusyError):
        await reader.read("llm/chat", IDS)
    monkeypatch.setattr(prompt_reader, "READ_SECONDS", 60.0)
    assert (await reader.read("llm/chat", b'{"prompt": "x"}')).text_bytes == 1


async def test_a_process_that_dies_takes_one_prompt_with_it(reader):
    await reader.read("llm/chat", b'{"prompt": "x"}')
    reader._process.kill()
    with pytest.raises(ReaderBusyError):
        await reader.read("llm/chat", IDS)
    assert (await reader.read("llm/chat", IDS)).counted_tokens == 100_000
