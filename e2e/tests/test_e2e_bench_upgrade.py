"""What the upgrade benchmark counts as lost, and that every pod gets another template."""

import asyncio

import httpx
import pytest

from e2e.bench import upgrade
from e2e.bench.faults.traffic import Ask, request_body
from e2e.bench.upgrade import Answers, BrokenError
from e2e.demo.target import connect

ANSWERED = (200, '{"usage": {"completion_tokens": 4}}')


@pytest.mark.parametrize(
    ("outcome", "lost"),
    [
        (ANSWERED, 0),
        ((503, '{"error": {"code": "no_ready_engine", "message": "none"}}'), 1),
        (BrokenError("HTTP/2: (55, 'Connection reset')"), 1),
    ],
)
async def test_a_request_that_breaks_or_is_refused_is_lost(outcome, lost):
    async def post(_):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    answers, stop = Answers(), asyncio.Event()
    stop.set()
    await upgrade._client(post, 1, answers, stop)
    assert (answers.sent, len(answers.lost)) == (1, lost)


async def test_an_answer_that_ends_early_is_broken():
    def cut(_):
        raise httpx.RemoteProtocolError("peer closed connection")

    body = request_body(Ask("chat", 4, streamed=False, text_seed=""))
    async with httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(cut)) as pool:
        with pytest.raises(BrokenError, match="RemoteProtocolError"):
            await upgrade._post_http1(pool, body)


def test_every_part_of_the_release_gets_another_template():
    values = connect({"CLUSTER": "local"}).values
    other = upgrade._with_other_limits(values)
    assert other["gateway"]["image"] == values["gateway"]["image"]
    assert {part for part in other if other[part] != values.get(part)} == {"operator", "picker", "gateway"}
