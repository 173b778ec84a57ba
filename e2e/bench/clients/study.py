"""What clients may ask, asked of the real engine behind the real gateway: `python -m e2e.bench.clients`.

Envoy, picker, sidecar and vLLM on loopback, vLLM with the environment of the demo's image. Requests of
`requests` are sent by the `openai` client, several at once, under each policy in turn; some clients
leave in the middle. No request may end the engine, and every refusal must be an error that the client can
read. Also counted: streams that break off after their 200, answers that the engine calls its own failure,
requests that it still holds when all have ended, and steps for which a policy failed.
"""

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from e2e.bench.clients.requests import DEADLY, MODEL, Request, made
from e2e.bench.gateway.testbed import HOST, start_testbed
from e2e.bench.real_engine.pod import Pod
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from headrace_engine.contracts import PerRequest, PolicyDocument, Slo
from headrace_engine.policies import registry

COMMAND = "python -m e2e.bench clients"
REQUESTS = 2000  # and the deadly ones
SEED = 1
AT_ONCE = 12  # the engine runs eight
ANSWER_SECONDS = 120.0
REST_SECONDS = 60.0
TYPES: dict[str, tuple[Any, Any]] = {
    "/chat/completions": (ChatCompletion, openai.AsyncStream[ChatCompletionChunk]),
    "/completions": (Completion, openai.AsyncStream[Completion]),
    "/responses": (Response, openai.AsyncStream[ResponseStreamEvent]),
}
SLO = Slo(ttft_ms=1000, tpot_ms=100, e2e_ms=10_000, per_request=PerRequest(ttft_ms=100))

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: the HTTP status, 0 without one; what was wrong, if anything; its words."""

    request: Request
    status: int
    wrong: str = ""
    words: str = ""


@dataclass(slots=True)
class Report:
    """What was seen of all requests and of the engine."""

    outcomes: list[Outcome] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)  # what was under way, and the engine's last words
    held: list[str] = field(default_factory=list)  # by policy
    failed_steps: int = 0

    def figures(self) -> dict[str, float]:
        """Return the figures that the result file holds."""
        statuses = Counter(outcome.status // 100 for outcome in self.outcomes)
        return {
            "requests": len(self.outcomes),
            "engine_deaths": len(self.deaths),
            "non_openai_errors": sum(bool(each.wrong) and each.status != 200 for each in self.outcomes),
            "broken_streams": sum(bool(each.wrong) and each.status == 200 for each in self.outcomes),
            "answered": statuses[2],
            "refused": statuses[4],
            "engine_failures": statuses[5],
            "requests_held": len(self.held),
            "policy_failures": self.failed_steps,
        }


def find_fault(error: openai.APIError) -> str:
    """Name what keeps an error from being one of OpenAI's; empty if nothing does."""
    if isinstance(error, openai.APITimeoutError):
        return f"no answer in {ANSWER_SECONDS:g} s"
    if isinstance(error, openai.APIConnectionError):
        return f"the connection broke: {error.__cause__!r}"
    if isinstance(error, openai.APIResponseValidationError):
        return "an answer that the client cannot read"
    if not isinstance(error.body, dict):
        return "no error object"
    if not error.body.get("message") or not isinstance(error.body["message"], str):
        return "no message"
    named: dict[str, Any] = {"type": error.type, "param": error.param, "code": error.code}
    wrong = [name for name, value in named.items() if not isinstance(value, str | None)]
    return f"{' and '.join(wrong)}: no string" if wrong else ""


async def ask(client: openai.AsyncOpenAI, request: Request) -> Outcome:
    """Send one request, and read the answer as far as the client stays."""
    whole, stream = TYPES[request.path]
    status = 0
    try:
        if request.body.get("stream") is True:
            events = await client.post(
                request.path, cast_to=whole, body=request.body, stream=True, stream_cls=stream
            )
            status = 200
            await _read(events, request.leaves_after)
        else:
            await client.post(request.path, cast_to=whole, body=request.body)
    except openai.APIError as error:
        return Outcome(
            request, getattr(error, "status_code", status), find_fault(error), str(error.body or error)
        )
    except (TypeError, ValueError) as error:  # of an answer that is no JSON
        return Outcome(request, status, f"an answer that the client cannot read: {error!r}")
    return Outcome(request, 200)


async def _read(events: Any, most: int | None) -> None:
    async with events:
        number = 0
        async for _ in events:
            number += 1
            if most is not None and number > most:
                return


async def send(client: openai.AsyncOpenAI, pod: Pod, requests: Sequence[Request], report: Report) -> None:
    """Send these, `AT_ONCE` at a time; an engine that dies is started again."""
    waiting = list(reversed(requests))
    under_way: list[Request] = []
    mended = asyncio.Lock()

    async def work() -> None:
        while waiting:
            request = waiting.pop()
            under_way.append(request)
            asked = list(under_way)
            report.outcomes.append(await ask(client, request))
            async with mended:
                if not await asyncio.to_thread(_stays, pod, report.outcomes[-1]):
                    told = "\n".join(map(str, {str(each): each for each in [*asked, *under_way]}))
                    report.deaths.append(f"{told}\n{pod.last_words(12_000)}")
                    await asyncio.to_thread(pod.start_engine)
            under_way.remove(request)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())


def _stays(pod: Pod, outcome: Outcome) -> bool:
    """Tell whether the engine lives; one that has just failed may still be about to end."""
    deadline = time.monotonic() + (2.0 if outcome.status == 0 or outcome.status >= 500 else 0.0)
    while pod.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    return pod.alive()


async def at_rest(pod: Pod) -> str:
    """Wait until the engine holds no request; what it still holds if it goes on doing so."""
    deadline = time.monotonic() + REST_SECONDS
    while True:
        load = await asyncio.to_thread(pod.load)
        if load.running == load.waiting == 0 and load.free_kv_blocks == load.total_kv_blocks:
            return ""
        if time.monotonic() > deadline:
            return f"{load.running} running, {load.waiting} waiting, {load.free_kv_blocks} blocks free"
        await asyncio.sleep(0.2)


@contextlib.contextmanager
def start_pod(folder: Path) -> Iterator[Pod]:
    """Start a gateway with one service, `MODEL`, and its pod, all serving."""
    with start_testbed(folder) as made:
        pod = Pod(made, MODEL)
        pod.start(PolicyDocument(policy="FCFS", slo=SLO).sealed())
        made.apply({MODEL: ("SAL", [HOST])})
        made.start_picker()
        made.start_envoy()
        asyncio.run(made.ready(1))
        yield pod


async def campaign(pod: Pod, requests: Sequence[Request], say: Say) -> Report:
    """Send the requests, a part of them under each policy, and the deadly ones under each."""
    report, names = Report(), registry.policy_names()
    url = f"{pod.gateway}/v1"
    async with openai.AsyncOpenAI(
        base_url=url, api_key="none", max_retries=0, timeout=ANSWER_SECONDS
    ) as client:
        for turn, name in enumerate(names):
            await asyncio.to_thread(pod.apply, PolicyDocument(policy=name, slo=SLO).sealed())
            part = [*DEADLY, *requests[turn :: len(names)]]
            await send(client, pod, part, report)
            if held := await at_rest(pod):
                report.held.append(f"{name}: {held}")
            report.failed_steps += (await asyncio.to_thread(pod.status)).policy.fallback_steps
            say(f"{name}: {report.figures()}")
    return report


def measure(count: int, seed: int, folder: Path, say: Say) -> Report:
    """Send so many requests, and return the report."""
    requests = made(count, seed)
    with start_pod(folder) as pod:
        return asyncio.run(campaign(pod, requests, say))


def tell(report: Report, say: Say) -> None:
    """Say what was wrong, and what the engine calls its own failure."""
    for death in report.deaths:
        say(f"✗ the engine died with these under way:\n{death}")
    for outcome in report.outcomes:
        if outcome.wrong:
            say(f"✗ {outcome.status} {outcome.wrong}: {outcome.words[:300]}\n  {outcome.request}")
        elif outcome.status >= 500:
            say(f"  {outcome.status} {outcome.words[:300]}\n  {outcome.request}")
    for held in report.held:
        say(f"✗ held after all had ended, {held}")


def main() -> int:
    """Send them and write the figures; fails if an engine died or an error was not OpenAI's."""
    parser = describe(__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="clients-") as folder:
        report = measure(chosen.requests, chosen.seed, Path(folder), print)
    tell(report, print)
    figures = report.figures()
    if (chosen.requests, chosen.seed) == (REQUESTS, SEED):
        print(results.write("clients", COMMAND, figures))
    good = not (report.deaths or report.held or figures["non_openai_errors"] or figures["policy_failures"])
    return 0 if good else 1
