"""The real vLLM server goes on after tokens that were delivered before, and clients can't tell."""

import random
import re

import httpx
import pytest

from e2e.bench.continuation import features, resuming_engines
from e2e.bench.continuation.signer import Signer
from e2e.bench.continuation.streams import RefusedError, ask
from headrace_engine.contracts.resume_arguments import RESUME_IDS, Resumption, arguments

SERVICE = "test/tiny"
GATEWAY = Signer()
TIMES = (1_780_000_000.0, 1_780_000_001.0, 1_780_000_002.0)
PROMPTS = 2
SHOWS = {  # parts of the answer, so that what is compared is what was asked for
    "regex": {"text": r"[a-j]{40}-[0-9]{20}"},
    "JSON schema": {"text": r'(?s)\{\s*"name".*'},
    "reasoning": {"reasoning": r"(?s).+", "content": r"[a-z ]{60}"},
    "tool call": {
        "reasoning": r"(?s).+",
        "tool 0 name": "weather",
        "tool 0 arguments": r'\{"city": "[a-z]{20}"\}',
    },
    "tool call, required": {"reasoning": r"(?s).+", "tool 0 name": "weather"},
}
CUTS = (0.01, 0.4, 0.75, 0.99)  # of an answer's tokens

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),  # torch's own, as the model is made
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    features.write_model(folder / "tiny")
    made = resuming_engines.start_engine(folder / "server", folder / "tiny", SERVICE, GATEWAY)
    try:
        made.wait_ready()
        yield made
    finally:
        made.stop()


@pytest.fixture
async def client():
    limits = httpx.Limits(keepalive_expiry=3)  # vLLM closes a connection that was idle for 5 s
    async with httpx.AsyncClient(timeout=300, limits=limits) as made:
        yield made


def prompts(name):
    dice = random.Random(name)
    for _ in range(PROMPTS):
        yield "".join(dice.choice("abcdefghij klmn\n") for _ in range(dice.randint(8, 200)))


def signed(token_ids, signer=GATEWAY):
    return arguments(signer, SERVICE, Resumption(tuple(token_ids), *TIMES))


def cut_places(answer):
    last = len(answer.token_ids) - 1
    return sorted({min(max(round(share * last), 1), last) for share in CUTS if last})


@pytest.mark.parametrize("name", features.FEATURES)
async def test_a_resumed_answer_is_the_one_that_was_cut(server, client, name):
    for prompt in prompts(name):
        path, body = features.body(name, prompt)
        whole = await ask(client, server.url + path, body)
        for part, shape in SHOWS.get(name, {}).items():
            assert re.fullmatch(shape, whole.texts[part])
        for place in cut_places(whole):
            asked = {**body, "vllm_xargs": signed(whole.token_ids[:place])}
            resumed = await ask(client, server.url + path, asked)
            assert not whole.difference(resumed, place), f"cut after {place} of {len(whole.token_ids)}"


async def test_ids_that_the_gateway_did_not_sign_change_nothing(server, client):
    path, body = features.body("greedy", "Once upon a time")
    whole = await ask(client, server.url + path, body)
    for forged in (
        signed([1, 2, 3], Signer()),
        {**signed([1, 2, 3]), RESUME_IDS: [1, 2, 4]},
        {RESUME_IDS: [1, 2, 3]},
        {**signed([1, 2, 3]), RESUME_IDS: ["1", "2", "3"]},
    ):
        assert not whole.difference(await ask(client, server.url + path, {**body, "vllm_xargs": forged}), 0)


@pytest.mark.parametrize(
    ("delivered", "more", "reason"),
    [
        ([1, 320], {}, "320 is not among the model's 320 tokens"),
        ([1, -1], {}, "-1 is not among"),
        ([5] * (resuming_engines.LONGEST - 4), {"max_tokens": None}, "fill the model's 1024 tokens"),
        ([5] * 96, {}, "all of its 96 tokens were delivered"),
        ([5], {"n": 2, "temperature": 1}, "it asks for 2 answers"),
        ([5], {"prompt_logprobs": 1, "stream": False}, "it asks for logprobs of its prompt"),
    ],
)
async def test_what_cannot_be_resumed_is_refused_with_the_reason(server, client, delivered, more, reason):
    path, body = features.body("greedy", "Once upon a time")
    asked = {**body, **more, "vllm_xargs": signed(delivered)}
    answer = await client.post(server.url + path, json=asked)
    assert answer.status_code == 400
    assert "this generation can't be resumed: " in answer.json()["error"]["message"]
    assert reason in answer.json()["error"]["message"]


async def test_tokens_that_do_not_fit_the_grammar_end_that_request_alone(server, client):
    path, body = features.body("regex", "Once upon a time")
    try:
        answer = await ask(client, server.url + path, {**body, "vllm_xargs": signed([1, 2, 3])})
    except RefusedError:
        pass
    else:  # vLLM 0.30 only ends the stream
        assert (answer.texts, answer.finish) == ({}, (None, None))
    assert (await client.get(f"{server.url}/health")).status_code == 200
    await ask(client, server.url + path, body)
