"""What a hostile client can do to the gateway: `python -m e2e.bench.attacks`.

Real Envoy and picker on loopback with API keys, in front of engines that write down what reaches them. Every
attack of `cases` is sent with the picker up and again after it was killed; then those that take time:
slow and endless requests, many at once, and more half-sent bodies than fit into memory. Between and during
them an honest client must be served. About two minutes, most of it waiting for Envoy's own time limits.
Then comes what a neighbour in the cluster can do (`tenants`): a minute, and root, for a network of its own;
and for how long one body holds the picker's loop (`loop_hold`), and whether what engines refuse has others
refused (`bookings`).
"""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from e2e.bench.attacks import bookings, cases, loop_hold
from e2e.bench.attacks.cases import CHAT, KEY, OTHER, SERVICE, SPOOFED, Attack, Message
from e2e.bench.gateway.http1 import ServerConnection, listen
from e2e.bench.gateway.testbed import HOST, Testbed, resident_bytes, start_testbed
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.bench.tenants import study as tenants
from headrace_engine.adapter.targets import read_overrides, resolve_targets
from headrace_engine.contracts import GatewayConfig, Slo, encode
from headrace_gateway.headers import CLIENT_HEADER
from headrace_gateway.names import PICKER_FILTER
from headrace_gateway.pick.prompt_reader import takes_long
from headrace_gateway.xds import credentials

COMMAND = "python -m e2e.bench.attacks"
ENGINES = {SERVICE: "127.0.9.1", OTHER: "127.0.9.2", "thief/code": "127.0.9.3"}
BODY_LIMIT = 1 << 20
MEMORY = 256 << 20  # that Envoy is told it may have
ANSWER_SECONDS = 30.0
SLOW_CLIENTS = 200
HALF_BODIES = 600  # of nearly `BODY_LIMIT` each: more than twice the memory
APART = 0.005  # seconds: 1.6 Gbit/s; whoever is faster outruns Envoy's look at its heap every 0.1 s
SLO = Slo(ttft_ms=500, tpot_ms=100, e2e_ms=30_000)  # the service's; it allows no overrides

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; status 0: the connection ended without an answer."""

    status: int
    body: bytes

    def is_error(self) -> bool:
        """Tell whether the body is OpenAI's error object."""
        try:
            error = json.loads(self.body)["error"]
        except (ValueError, KeyError, TypeError):
            return False
        return error.keys() == {"message", "type", "param", "code"} and bool(error["message"])


@dataclass(slots=True)
class Setup:
    """The gateway under attack, and what its engines got: address, head in lower case, body."""

    testbed: Testbed
    arrived: list[tuple[str, str, bytes]] = field(default_factory=list)

    async def send(self, data: bytes) -> Answer:
        """Send these bytes on a connection of their own."""
        reader, writer = await asyncio.open_connection(HOST, self.testbed.ports["gateway"])
        try:
            writer.write(data)
            async with asyncio.timeout(ANSWER_SECONDS):
                return await read_answer(reader)
        finally:
            writer.close()

    async def honest(self) -> bool:
        """Tell whether a request that is as it should be is served."""
        return (await self.send(Message(body=cases.chat()).encode())).status == 200

    async def try_one(self, attack: Attack) -> str:
        """Send it; what was wrong with the outcome, or nothing."""
        before = len(self.arrived)
        answer = await self.send(attack.message.encode())
        reached = self.arrived[before:]
        busy = answer.status == 429 and takes_long(attack.message.body)  # its reader got no processor in time
        if answer.status not in attack.statuses and not busy:
            return f"status {answer.status}, not {' or '.join(map(str, attack.statuses))}"
        if answer.status != 200:
            return "reached an engine" if reached else "" if answer.is_error() else "no OpenAI error"
        if [address for address, _, _ in reached] != [ENGINES[SERVICE]]:
            return "reached another engine"
        return still_armed(*reached[0][1:])


def still_armed(head: str, body: bytes) -> str:
    """Name what of the forged reached the engine and would count there, or nothing.

    What the gateway lets through in the body or the request's id is read by the engine's own rules.
    """
    lines = [line.partition(":") for line in head.split("\r\n")[1:]]
    fields = {name.strip(): value.strip() for name, _, value in lines if name}
    forbidden = {name.lower() for name in SPOOFED} | {"authorization", "x-api-key"}
    if found := forbidden & fields.keys() - {CLIENT_HEADER}:
        return f"engine saw {', '.join(sorted(found))}"
    if fields.get(CLIENT_HEADER) != "campaign":
        return "engine was told of another client"
    asked = json.loads(body).get("vllm_xargs")
    override = read_overrides(f"chatcmpl-{fields.get('x-request-id', '')}", asked, SLO)
    if override.output_tokens is not None or resolve_targets(SLO, override.targets, None) != resolve_targets(
        SLO, NO_OVERRIDE, None
    ):
        return "the forged override counts"
    return ""


NO_OVERRIDE = read_overrides("", None, SLO).targets


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read one HTTP answer from the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        return Answer(int(head[9:12]), await reader.readexactly(length))
    except (ConnectionError, asyncio.IncompleteReadError):
        return Answer(0, b"")


@contextlib.asynccontextmanager
async def set_up(folder: Path, hurry: bool) -> Any:
    """Start a gateway with three services in two namespaces.

    `hurry` shortens Envoy's limits of time for clients, and lengthens the picker's, whom other tests hold up.
    """
    with start_testbed(folder) as made:
        it = Setup(made)
        servers = [
            await listen(address, made.ports["engine"], _engine(it, address)) for address in ENGINES.values()
        ]
        keys = folder / "keys" / "api-keys.json"
        keys.parent.mkdir()
        keys.write_text(json.dumps(credentials.api_keys_document([(KEY, "campaign")])))
        (folder / "catalog.json").write_text(json.dumps(list(_catalog(made))))
        made.start_picker()
        made.start_envoy(
            _hurried if hurry else None, api_keys=str(keys), max_body_bytes=BODY_LIMIT, memory_bytes=MEMORY
        )
        await made.ready(0)
        yield it
        for server in servers:
            server.close()


def _engine(it: Setup, address: str) -> Callable[[ServerConnection, bytes, bytes], None]:
    def respond(connection: ServerConnection, head: bytes, body: bytes) -> None:
        told = head.decode("latin1").lower()
        if not (told.startswith("get /health ") and "user-agent: envoy/hc" in told):  # Envoy's own question
            it.arrived.append((address, told, body))
        connection.answer(b'{"choices":[]}')

    return respond


def _catalog(made: Testbed) -> Iterator[dict[str, Any]]:
    """Make a catalog in which the youngest service wants a model name of the oldest."""
    for age, (key, models) in enumerate({SERVICE: ["chat"], OTHER: ["code"], "thief/code": ["chat"]}.items()):
        namespace, name = key.split("/")
        config = GatewayConfig(
            namespace,
            name,
            (*models, key),
            name,
            slo=SLO,
            port=made.ports["engine"],
            sidecar_port=made.ports["sidecar"],
        )
        yield {
            "config": encode(config),
            "addresses": [ENGINES[key]],
            "since": f"2026-01-0{age + 1}T00:00:00Z",
        }


def _hurried(document: dict[str, Any]) -> None:
    manager = document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager |= {"request_headers_timeout": "1s", "request_timeout": "3s"}
    asked = next(each for each in manager["http_filters"] if each["name"] == PICKER_FILTER)
    picker = asked["typed_config"]["http_service"]
    picker["server_uri"]["timeout"] = picker["retry_policy"]["retry_back_off"]["max_interval"] = "10s"


async def campaign(it: Setup, say: Say) -> dict[str, str]:
    """Try everything; by name, what was wrong with its outcome, empty for what was refused or disarmed."""
    outcomes: dict[str, str] = {}
    for state in ("with", "without"):
        if state == "without":
            await asyncio.to_thread(it.testbed.kill, "picker")
        for attack in cases.attacks(BODY_LIMIT):
            if state == "with" or not attack.needs_picker:
                outcomes[f"{attack.name}, {state} picker"] = await it.try_one(attack)
        outcomes[f"honest requests are served {state} picker"] = "" if await it.honest() else "refused"
        say(f"{len(outcomes)} tried {state} the picker")
    it.testbed.start_picker()
    await it.testbed.ready(0)
    patient = {"slow headers": slow_headers, "slow body": slow_body, "endless body": endless_body}
    patient["endless headers"] = endless_headers
    async with served_meanwhile(it) as honest:
        found = await asyncio.gather(*(attack(it) for attack in patient.values()))
    outcomes |= dict(zip(patient, found, strict=True))
    outcomes["honest requests are served meanwhile"] = honest()
    say("slow and endless ones are over")
    outcomes["half-sent bodies beyond memory"] = await half_bodies(it)
    return outcomes


@contextlib.asynccontextmanager
async def served_meanwhile(it: Setup) -> Any:
    """Send an honest client's requests while the context lasts; gives what to ask for the outcome."""
    results_: list[bool] = []

    async def ask() -> None:
        while True:
            results_.append(await it.honest())
            await asyncio.sleep(0.2)

    task = asyncio.create_task(ask())
    try:
        yield (
            lambda: (
                "" if results_ and all(results_) else f"{results_.count(False)} of {len(results_)} refused"
            )
        )
    finally:
        task.cancel()


Part = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def _drip(it: Setup, start: bytes, more: bytes, pause: float) -> Answer:
    """Send `start`, then `more` again and again, until an answer comes or the connection ends."""
    reader, writer = await asyncio.open_connection(HOST, it.testbed.ports["gateway"])
    answer = asyncio.create_task(read_answer(reader))
    with contextlib.suppress(ConnectionError):
        writer.write(start)
        while not answer.done():
            writer.write(more)
            await writer.drain()
            await asyncio.wait([answer], timeout=pause)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await answer
    finally:
        writer.close()


def _all_ended(answers: list[Answer], *statuses: int) -> str:
    """Say whether each was told why, or cut off: both end what it holds."""
    wrong = [answer.status for answer in answers if answer.status not in (0, *statuses)]
    unclear = [answer for answer in answers if answer.status and not answer.is_error()]
    return f"statuses {sorted(set(wrong))}" if wrong else "no OpenAI error" if unclear else ""


async def slow_headers(it: Setup) -> str:
    """Open many connections that send a header line every now and then, for ever."""
    start = b"POST " + CHAT.encode() + b" HTTP/1.1\r\nhost: gateway\r\n"
    drips = [_drip(it, start, b"x-a: b\r\n", 0.4) for _ in range(SLOW_CLIENTS)]
    return _all_ended(await asyncio.gather(*drips), 408)


async def slow_body(it: Setup) -> str:
    """Send many requests whose bodies come a byte at a time."""
    start = Message(body=cases.chat(), length=False, headers=[("content-length", "100000")]).encode()
    drips = [_drip(it, start, b" ", 0.4) for _ in range(SLOW_CLIENTS)]
    return _all_ended(await asyncio.gather(*drips), 408)


async def endless_body(it: Setup) -> str:
    """Send a chunked body without an end."""
    start = Message(length=False, headers=[("transfer-encoding", "chunked")]).encode()
    return _all_ended([await _drip(it, start, b"10000\r\n" + b" " * 65536 + b"\r\n", 0.0)], 413)


async def endless_headers(it: Setup) -> str:
    """Send a header without an end."""
    start = b"POST " + CHAT.encode() + b" HTTP/1.1\r\nhost: gateway\r\nx-a: "
    return _all_ended([await _drip(it, start, b"a" * 65536, 0.0)], 431)


async def half_bodies(it: Setup) -> str:
    """Send more half-sent bodies than Envoy has memory for: it must refuse, and serve again afterwards."""
    process = it.testbed.processes["envoy"]
    start = Message(length=False, headers=[("content-length", str(BODY_LIMIT - 1))]).encode()
    held: list[asyncio.StreamWriter] = []
    try:
        for _ in range(HALF_BODIES):
            with contextlib.suppress(ConnectionError, TimeoutError):
                _, writer = await asyncio.open_connection(HOST, it.testbed.ports["gateway"])
                held.append(writer)
                writer.write(start + b" " * (BODY_LIMIT - 1000))
                async with asyncio.timeout(2):
                    await writer.drain()
            await asyncio.sleep(APART)
        used = resident_bytes(process.pid)
    finally:
        for writer in held:
            writer.transport.abort()
    if process.poll() is not None:
        return "Envoy ended"
    if used > 2 * MEMORY:  # the heap is what is watched; code and tables come on top
        return f"Envoy took {used >> 20} MiB"
    for _ in range(50):
        if await it.honest():
            return ""
        await asyncio.sleep(0.2)
    return "not served afterwards"


async def measure(say: Say, *, hurry: bool = False) -> dict[str, str]:
    """Run the campaign; outcomes by name."""
    with tempfile.TemporaryDirectory(prefix="attacks-") as folder:
        async with set_up(Path(folder), hurry) as it:
            return await campaign(it, say)


def main() -> int:
    """Run it and write how many attacks were tried and refused; fails if any got through."""
    describe(__doc__).parse_args()
    clients, neighbours = asyncio.run(measure(print)), tenants.apart(print)
    through = {name: wrong for name, wrong in (clients | neighbours).items() if wrong}
    for name, wrong in through.items():
        print(f"✗ {name}: {wrong}")
    figures = {
        "tried": len(clients) + len(neighbours),
        "refused": len(clients) + len(neighbours) - len(through),
        "tenant_tried": len(neighbours),
        "tenant_refused": sum(not wrong for wrong in neighbours.values()),
        **uvloop.run(loop_hold.measure()),
        **bookings.measure(),
    }
    print(results.write("attacks", COMMAND, figures))
    return 1 if through else 0
