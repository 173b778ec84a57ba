"""How long a policy change takes and what it costs: `python -m e2e.bench.switch`.

Twenty changes, each to both sample services at once: `chat` answers requests all the time, `code` is idle. A
change is over when the operator says PolicyApplied for the new generation with every replica counted; the
clock starts before `kubectl patch` does. Meanwhile clients send the same greedy prompts over and over. They
must get the very tokens that an undisturbed run gave, none may fail, and no container may restart.
"""

import asyncio
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.demo import deploy, metrics, replay, services
from e2e.demo.kube import Kube, Object
from e2e.demo.steps import StageError, Steps

CHANGES = 20
CLIENTS = 8  # requests to `chat` in flight at any time, over its two engines
PROMPTS = 32
SETTLE = 1.0  # seconds between one change's end and the next one's start


@dataclass(slots=True)
class Answers:
    """What the clients got: the tokens of each prompt's answers, and what failed."""

    tokens: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)
    completed: int = 0
    in_flight: int = 0
    errors: list[str] = field(default_factory=list)


def main() -> int:
    """Measure, print and write the figures; the exit status says whether all changes were applied in time."""
    describe(__doc__).parse_args()
    steps = Steps()
    try:
        target, manifests = deploy.everything(steps)
        with target.gateway() as url, steps.stage(f"{CHANGES} changes"):
            figures = asyncio.run(measure(url, target.kube, sorted(manifests), steps))
    except StageError as error:
        steps.say(f"✗ {error}")
        return 1
    for name, value in figures.items():
        steps.say(f"  {name}: {value}")
    path = results.write("switch", "python -m e2e.bench.switch", figures)
    steps.say(f"written to {path}")
    return 0


async def measure(url: str, kube: Kube, names: Sequence[str], steps: Steps) -> dict[str, float]:
    """Make all changes under load; returns the figures."""
    timeout = aiohttp.ClientTimeout(total=replay.DEADLINE)
    async with aiohttp.ClientSession(url, timeout=timeout) as session:
        undisturbed = Answers()
        await clients(session, undisturbed, rounds=1)
        if undisturbed.errors:
            raise StageError(f"the undisturbed run failed: {undisturbed.errors[0]}")
        steps.say(f"  undisturbed: {undisturbed.completed} answers")
        pods = services.pod_lives(kube)
        disturbed = Answers()
        load = asyncio.create_task(clients(session, disturbed))
        seconds, in_flight = [], []
        try:
            for number in range(CHANGES):
                await asyncio.sleep(SETTLE)
                in_flight.append(disturbed.in_flight)
                took = await asyncio.gather(
                    *(asyncio.to_thread(services.schedule, kube, name, scheduling(number)) for name in names)
                )
                seconds.append(max(change.total for change in took))
                each = ", ".join(f"{name} {each.total:.2f} s" for name, each in zip(names, took, strict=True))
                steps.say(f"  {number + 1}: {scheduling(number)}: {each}, {in_flight[-1]} in flight")
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
        restarts = services.restarted(pods, services.pod_lives(kube))
    ordered = sorted(seconds)
    return {
        "applied_p50_seconds": round(metrics.percentile(ordered, 50), 3),
        "applied_p95_seconds": round(metrics.percentile(ordered, 95), 3),
        "applied_max_seconds": round(ordered[-1], 3),
        "changes": len(seconds),
        "least_in_flight": min(in_flight),
        "requests_completed": disturbed.completed,
        "requests_lost": len(disturbed.errors),
        "pods_restarted": restarts,
        "outputs_changed": changed(undisturbed, disturbed),
    }


def scheduling(number: int) -> Object:
    """Make the n-th change: FCFS and LARRY in turn, LARRY with another weight each time."""
    if number % 2:
        return {"policy": "FCFS"}
    return {"policy": "LARRY", "larry": {"alpha": number + 1}}


def changed(undisturbed: Answers, disturbed: Answers) -> int:
    """Count the prompts that got an answer that the undisturbed run did not give."""
    return sum(not tokens <= undisturbed.tokens[prompt] for prompt, tokens in disturbed.tokens.items())


async def clients(session: aiohttp.ClientSession, answers: Answers, rounds: int | None = None) -> None:
    """Keep CLIENTS requests in flight over all prompts, for so many rounds or until cancelled.

    A cancelled request is the client's own doing and counts as nothing.
    """
    endless = itertools.cycle(range(PROMPTS))
    numbers = endless if rounds is None else itertools.islice(endless, rounds * PROMPTS)

    async def client() -> None:
        for number in numbers:
            await _ask(session, number, answers)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(client())


async def _ask(session: aiohttp.ClientSession, number: int, answers: Answers) -> None:
    """Ask for one greedy completion; lengths vary by prompt so that batches mix."""
    wanted = 32 + 13 * (number % 8)
    body = {
        "model": "chat",
        "prompt": replay.prompt(f"switch-{number}", 40 + 37 * (number % 11)),
        "max_tokens": wanted,
        "ignore_eos": True,
        "temperature": 0,
        "return_token_ids": True,
    }
    answers.in_flight += 1
    try:
        async with session.post("/v1/completions", json=body) as response:
            if response.status != 200:
                answers.errors.append(f"HTTP {response.status}: {(await response.text())[:200]}")
                return
            tokens = tuple((await response.json())["choices"][0]["token_ids"])
    except (aiohttp.ClientError, TimeoutError) as error:
        answers.errors.append(f"{type(error).__name__}: {error}")
        return
    finally:
        answers.in_flight -= 1
    if len(tokens) != wanted:
        answers.errors.append(f"{len(tokens)} of {wanted} tokens came")
        return
    answers.completed += 1
    answers.tokens.setdefault(number, set()).add(tokens)


if __name__ == "__main__":
    sys.exit(main())
