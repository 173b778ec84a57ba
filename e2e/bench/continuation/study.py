"""What clients see when engines die or are stopped: `python -m e2e.bench.continuation [--kills 20]`.

Two real engines of a tiny model run on CPUs behind the real Envoy, picker and relay. Requests with each
feature of the sampler and of vLLM's parsers are answered by one engine undisturbed, and then through the
gateway while one of the two engines is killed with SIGKILL, again and again. Then an engine with 64 streams
is stopped, and one is killed 30 s after its notice, as a spot machine is.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
from rich.console import Console

from e2e.bench.continuation import features
from e2e.bench.continuation.rig import ADDRESSES, Rig, start_rig
from e2e.bench.continuation.streams import Answer, RefusedError, ask
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe

COMMAND = "python -m e2e.bench.continuation"
PROMPTS = 3  # of each feature, for each kill
UNDER_WAY = 12  # requests that an engine has when it is killed, or more
SECRET = "Secret 7041: "
DRAINED = 64  # streams on an engine that is stopped
NOTICE_SECONDS = 30.0
LONG = 300  # tokens of an answer, of which not all are computed at once: the last outlast the notice

Asked = tuple[str, str]  # feature and prompt


def main() -> int:
    """Measure and write the figures."""
    parser = describe(__doc__)
    parser.add_argument("--kills", type=int, default=20, help="engines that are killed (default %(default)s)")
    chosen = parser.parse_args()
    figures = asyncio.run(measure(chosen.kills, Console(stderr=True)))
    print(results.write("continuation", f"{COMMAND} --kills {chosen.kills}", figures))
    return 0


async def measure(kills: int, console: Console) -> dict[str, float]:
    """Measure the figures."""
    with tempfile.TemporaryDirectory(prefix="continuation-") as folder:
        async with start_rig(Path(folder)) as rig:
            figures = await kill_engines(rig, kills, console)
            figures |= await stop_engines(rig)
            console.print(figures)
            return figures


async def kill_engines(rig: Rig, kills: int, console: Console) -> dict[str, float]:
    """Kill an engine in the middle of answers with all features, so many times."""
    dice = random.Random(1)
    requests = identical = errors = leaked = 0
    for kill in range(kills):
        victim, other = ADDRESSES if kill % 2 else ADDRESSES[::-1]
        asked = [
            (name, f"{SECRET}{each}") for name in features.FEATURES for each in prompts(f"{name} {kill}")
        ]
        whole = await all_whole(rig, rig.engines[other].url, asked)
        cut = asyncio.create_task(all_whole(rig, rig.url, asked))
        await rig.until_running(victim, lambda running: running >= UNDER_WAY)
        await asyncio.sleep(dice.uniform(0, 3))
        rig.engines[victim].kill()
        for (name, prompt), before, after in zip(asked, whole, await cut, strict=True):
            differs = difference(before, after)
            if differs:
                console.print(f"{name}, {prompt!r}: {differs}", markup=False)
            requests += 1
            errors += isinstance(after, RefusedError)
            identical += not differs
            leaked += isinstance(after, Answer) and any(SECRET in text for text in after.texts.values())
        console.print(f"{kill + 1} of {kills} engines killed: {identical} of {requests} answers identical")
        await rig.start(victim)
    return {
        "requests": requests,
        "identical": identical,
        "engines_killed": kills,
        "streams_resumed": rig.testbed.relay_metric("headrace_relay_streams_resumed_total"),
        "client_errors": errors,
        "prompt_text_leaked": leaked,
    }


async def stop_engines(rig: Rig) -> dict[str, float]:
    """Stop an engine with 64 streams, and one that is killed 30 s after its notice."""
    seconds, lost = await stop_an_engine(rig)
    rig.tell(ADDRESSES)
    for address in ADDRESSES:
        await rig.until_chosen(address)
    _, lost_after_notice = await stop_an_engine(rig, notice=NOTICE_SECONDS)
    return {
        "drain_64_streams_seconds": round(seconds, 2),
        "drain_lost": lost,
        "spot_notice_30s_lost": lost_after_notice,
    }


async def stop_an_engine(rig: Rig, notice: float | None = None) -> tuple[float, int]:
    """Stop an engine; return the seconds for which it still had streams, and how many streams were lost.

    With `notice` it is killed so many seconds after it was told to stop.
    """
    stopped, other = ADDRESSES
    asked = [("greedy", f"{number}") for number in range(2 * DRAINED)]
    streams = asyncio.create_task(all_whole(rig, rig.url, asked, max_tokens=LONG))
    await rig.until_running(stopped, lambda running: running >= DRAINED)
    began = time.monotonic()
    rig.tell([other], terminating=[stopped])
    await rig.until_running(stopped, lambda running: not running)
    seconds = time.monotonic() - began
    if notice is not None:
        await asyncio.sleep(max(notice - seconds, 0.0))
        rig.engines[stopped].kill()
    return seconds, sum(isinstance(answer, RefusedError) for answer in await streams)


def prompts(seed: str, count: int = PROMPTS) -> Iterator[str]:
    """Make prompts of a few words or many, alike for the same seed."""
    dice = random.Random(seed)
    for _ in range(count):
        yield "".join(dice.choice("abcdefghij klmn\n") for _ in range(dice.randint(8, 200)))


async def all_whole(
    rig: Rig, url: str, asked: Sequence[Asked], **more: object
) -> list[Answer | RefusedError]:
    """Ask for all at once; gives the answers, and the errors in place of those that did not come whole."""

    async def one(name: str, prompt: str) -> Answer | RefusedError:
        path, body = features.body(name, prompt)
        try:
            return await ask(rig.client, url + path, {**body, **more})
        except RefusedError as error:
            return error
        except httpx.HTTPError as error:
            return RefusedError(repr(error))

    return await asyncio.gather(*(one(*each) for each in asked))


def difference(whole: Answer | RefusedError, other: Answer | RefusedError) -> str:
    """Name the first part in which two answers differ; empty if none."""
    if isinstance(whole, RefusedError) or isinstance(other, RefusedError):
        return f"{whole} was to be, {other} came"
    return whole.difference(other, 0)
