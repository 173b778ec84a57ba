"""What an upgrade costs clients that keep their connections: `python -m e2e.bench.upgrade`.

The chart is installed with its own replicas and drain times (two Envoys, 60 s). Clients send short requests
to both sample services, with pauses, over connections that they keep: most over HTTP/1.1 from one pool, some
over HTTP/2 with a connection each. Then `helm upgrade` replaces every pod of operator, picker and gateway at
once. A request that breaks or is refused is lost; none is repeated, but that libcurl, as it is, sends a
request again whose kept connection turns out to be closed before any of it was answered.
"""

import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import httpx
import pycurl

from e2e.bench.faults.cases import SERVICES
from e2e.bench.faults.testbed import until
from e2e.bench.faults.traffic import Ask, complaint, request_body
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.demo import deploy, services
from e2e.demo.kube import Kube, Object
from e2e.demo.steps import StageError, Steps
from e2e.demo.target import SYSTEM_NAMESPACE, Target

HTTP1_CLIENTS = 24
HTTP2_CLIENTS = 12
LONGEST_PAUSE = 8.0  # seconds between an answer and the client's next request
SHORT, LONG = 4, 48  # tokens of an answer; one in ten is long
DEADLINE = 60.0  # seconds; a request that takes longer is lost
BEFORE, AFTER = 20.0, 10.0  # seconds of load beside the upgrade
GONE_SECONDS = 300.0


Post = Callable[[object], Awaitable[tuple[int, str]]]  # sends a body; status and text of the answer


class BrokenError(Exception):
    """A request that was not answered to its end."""


@dataclass(slots=True)
class Answers:
    """What the clients of one protocol saw."""

    sent: int = 0
    lost: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds


def main() -> int:
    """Measure, print and write the figures; the exit status says whether nothing was lost."""
    describe(__doc__).parse_args()
    steps = Steps()
    try:
        target, _ = deploy.everything(steps)
        with target.gateway() as url:
            try:
                figures = asyncio.run(measure(url, target, steps))
            finally:
                deploy.headrace(target, steps)
    except StageError as error:
        steps.say(f"✗ {error}")
        return 1
    for name, value in figures.items():
        steps.say(f"  {name}: {value}")
    steps.say(f"written to {results.write('upgrade', 'python -m e2e.bench.upgrade', figures)}")
    return 1 if figures["requests_lost"] else 0


async def measure(url: str, target: Target, steps: Steps) -> dict[str, float]:
    """Install the defaults, upgrade under load; the figures."""
    defaults = {key: value for key, value in target.values.items() if key != "operator"}
    defaults["gateway"] = {"image": target.values["gateway"]["image"]}
    await asyncio.to_thread(deploy.install, target.kube, defaults, steps)
    engines, old = services.pod_lives(target.kube), _pods(target.kube, ending=False)
    http1, http2, stop = Answers(), Answers(), asyncio.Event()
    load = asyncio.create_task(send(url, http1, http2, stop))
    try:
        await asyncio.sleep(BEFORE)
        began = time.monotonic()
        with steps.stage(f"helm upgrade of {len(old)} pods"):
            await asyncio.to_thread(deploy.install, target.kube, _with_other_limits(defaults), steps)
            await asyncio.to_thread(until, lambda: not old & _pods(target.kube), GONE_SECONDS, 1.0)
            if old & _pods(target.kube):
                raise StageError(f"old pods are still there after {GONE_SECONDS:.0f} s")
        took = time.monotonic() - began
        await asyncio.sleep(AFTER)
    finally:
        stop.set()
        await load
    for line in (http1.lost + http2.lost)[:10]:
        steps.say(f"  lost: {line}")
    return {
        "pods_replaced": len(old),
        "upgrade_seconds": round(took, 1),
        "requests_http1": http1.sent,
        "requests_http2": http2.sent,
        "requests_lost": len(http1.lost) + len(http2.lost),
        "slowest_seconds": round(max(http1.slowest, http2.slowest), 2),
        "engines_restarted": services.restarted(engines, services.pod_lives(target.kube)),
    }


async def send(url: str, http1: Answers, http2: Answers, stop: asyncio.Event) -> None:
    """Keep all clients busy until `stop` is set, then wait for their last answers."""
    kept = httpx.Limits(max_keepalive_connections=None, keepalive_expiry=None)
    async with httpx.AsyncClient(base_url=url, timeout=DEADLINE, limits=kept, trust_env=False) as pool:
        with ThreadPoolExecutor(HTTP2_CLIENTS) as threads:
            async with asyncio.TaskGroup() as tasks:
                for number in range(HTTP1_CLIENTS):
                    tasks.create_task(_client(partial(_post_http1, pool), number, http1, stop))
                for number in range(HTTP2_CLIENTS):
                    post = partial(_post_http2, threads, pycurl.Curl(), url)
                    tasks.create_task(_client(post, HTTP1_CLIENTS + number, http2, stop))


async def _client(post: Post, seed: int, answers: Answers, stop: asyncio.Event) -> None:
    pauses = random.Random(seed)
    for number in itertools.count(seed, HTTP1_CLIENTS + HTTP2_CLIENTS):
        await _ask(post, number, answers)
        try:
            async with asyncio.timeout(pauses.uniform(0, LONGEST_PAUSE)):
                await stop.wait()
        except TimeoutError:
            continue
        return


async def _ask(post: Post, number: int, answers: Answers) -> None:
    tokens = LONG if number % 10 == 0 else SHORT
    ask = Ask(SERVICES[number % len(SERVICES)], tokens, number % 3 == 0, f"upgrade-{number}")
    sent = time.monotonic()
    try:
        error = complaint(ask, *await post(request_body(ask)))
    except BrokenError as broken:
        error = str(broken)
    took = time.monotonic() - sent
    answers.sent += 1
    answers.slowest = max(answers.slowest, took)
    if error:
        answers.lost.append(f"after {took:.2f} s: {error}")


async def _post_http1(pool: httpx.AsyncClient, body: object) -> tuple[int, str]:
    try:
        response = await pool.post("/v1/completions", json=body)
    except httpx.HTTPError as broken:
        raise BrokenError(f"HTTP/1.1: {type(broken).__name__}: {broken}") from broken
    return response.status_code, response.text


async def _post_http2(threads: Executor, curl: pycurl.Curl, url: str, body: object) -> tuple[int, str]:
    """Post over the handle's own connection, which it keeps."""
    curl.setopt(pycurl.URL, f"{url}/v1/completions")
    curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE)
    curl.setopt(pycurl.HTTPHEADER, ["content-type: application/json"])
    curl.setopt(pycurl.POSTFIELDS, json.dumps(body))
    curl.setopt(pycurl.TIMEOUT, int(DEADLINE))
    curl.setopt(pycurl.NOPROXY, "*")
    try:
        text = await asyncio.get_running_loop().run_in_executor(threads, curl.perform_rb)
    except pycurl.error as broken:
        raise BrokenError(f"HTTP/2: {broken}") from broken
    return curl.getinfo(pycurl.RESPONSE_CODE), text.decode()


def _with_other_limits(values: Object) -> Object:
    """Return values that give every pod of the release another template."""
    other = {"resources": {"limits": {"memory": "2049Mi"}}}
    return {
        **values,
        **{part: {**values.get(part, {}), **other} for part in ("operator", "picker", "gateway")},
    }


def _pods(kube: Kube, *, ending: bool = True) -> set[str]:
    """Return uids of the release's pods."""
    pods = [pod["metadata"] for pod in kube.items(SYSTEM_NAMESPACE, "pods")]
    return {pod["uid"] for pod in pods if ending or "deletionTimestamp" not in pod}


if __name__ == "__main__":
    sys.exit(main())
