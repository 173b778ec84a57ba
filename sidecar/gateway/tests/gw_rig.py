"""A real Envoy and a real picker process on loopback, in front of fake engines.

The engines are small aiohttp servers, one address in 127.0.0.0/8 each, that answer like vLLM and stream load
reports like the sidecar. Envoy gets its configuration from the picker over ADS, as in a cluster.
"""

import asyncio
import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
from gw_engine import Engine

from e2e import ports
from headrace_engine.contracts import GatewayConfig, encode
from headrace_gateway import names
from headrace_gateway.xds.bootstrap import Bootstrap, bootstrap

HERE = Path(__file__).parent
ENVOY = Path(sys.executable).parent / "envoy"
BODY_LIMIT = 1 << 20
PING_INTERVAL = "0.1s"  # so that a minute of Envoy's pings takes a second
PICKER_TIMEOUT = "2s"  # a picker that is late on a busy machine is not one that is gone
PING_TIMEOUT = "20s"


def chat(model, text="hello", **extra):
    """A chat request's body."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **extra}


async def posted(session, url, body, headers=None):
    """Status and parsed body of the answer to a POST."""
    async with session.post(url, json=body, headers=headers) as response:
        return response.status, await response.json()


async def until(condition, what: str, seconds: float = 100.0):
    """Poll `condition` (sync or async) until it is true; its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"timed out: {what}"
        await asyncio.sleep(0.02)


class Rig:
    """Envoy and picker; `folder` holds their configuration and logs."""

    def __init__(self, folder: Path, body_limit: int = BODY_LIMIT):
        self.folder = folder
        self.body_limit = body_limit
        self.catalog_file = folder / "catalog.json"
        self.port, self.ready_port, self.admin_port, *others = ports.free(9)
        self.ads_port, self.picks_port, self.http_port, *others = others
        self.engine_port, self.sidecar_port, self.relay_http_port = others
        self.url = f"http://127.0.0.1:{self.port}"
        self.drain_file = folder / "draining"
        self.settings = {}  # more of the bootstrap's
        self.picker = None
        self.envoy = None
        self.relay = None
        self.tests = 0

    def start(self):
        """Everything, with no service yet."""
        self.write_catalog({})
        self.start_picker()
        self.start_envoy()

    async def revive(self, session):
        """Start the picker again if the test before ended it, once Envoy has seen that it is gone."""
        if self.picker is not None:
            return

        async def missed():
            return not await self.picker_healthy(session)

        await until(missed, "envoy has seen that the picker of the test before is gone")
        self.start_picker()

    def start_picker(self):
        with (self.folder / "picker.log").open("ab") as log:
            self.picker = subprocess.Popen(
                [
                    sys.executable,
                    str(HERE / "gw_picker.py"),
                    str(self.catalog_file),
                    str(self.ads_port),
                    str(self.picks_port),
                    str(self.http_port),
                ],
                stderr=log,
                env={**os.environ, "PYTHONWARNINGS": "default"},
            )

    def start_envoy(self):
        settings = Bootstrap(
            picker_host="127.0.0.1",
            ads_port=self.ads_port,
            picks_port=self.picks_port,
            max_body_bytes=self.body_limit,
            address="127.0.0.1",
            port=self.port,
            ready_port=self.ready_port,
            admin_port=self.admin_port,
            drain_file=str(self.drain_file),
            relay_folder=str(self.folder),
            **self.settings,
        )
        path = self.folder / "envoy.json"
        self.drain_file.write_text("0")
        document = bootstrap(settings)
        self.wait_longer(document)
        self.edit(document)
        path.write_text(json.dumps(document))
        with (self.folder / "envoy.log").open("ab") as log:
            self.envoy = subprocess.Popen(
                [
                    str(ENVOY),
                    *("-c", str(path), "--service-node", "test", "--service-cluster", "headrace"),
                    *("--concurrency", "1", "-l", "warning", "--disable-hot-restart"),
                    *("--file-flush-interval-msec", "50"),
                ],
                stdout=log,
                stderr=log,
            )

    def wait_longer(self, document):
        """Have Envoy wait for the picker for longer than in a cluster."""
        for cluster in document["static_resources"]["clusters"]:
            if "typed_extension_protocol_options" not in cluster:
                continue
            (options,) = cluster["typed_extension_protocol_options"].values()
            http2 = options["explicit_http_config"]["http2_protocol_options"]
            http2["connection_keepalive"] = {"interval": PING_INTERVAL, "timeout": PING_TIMEOUT}
        asked = _picker_service(document)
        asked["server_uri"]["timeout"] = PICKER_TIMEOUT
        asked["retry_policy"]["retry_back_off"]["max_interval"] = PICKER_TIMEOUT

    def edit(self, document):
        """Change Envoy's configuration; for rigs that differ."""

    def start_relay(self, key):
        """A relay beside Envoy that signs with the key in the file `key`."""
        others = (str(self.folder), str(self.relay_http_port))
        with (self.folder / "relay.log").open("ab") as log:
            self.relay = subprocess.Popen(
                [sys.executable, "-m", "e2e.bench.gateway.relay", str(key), *others],
                stderr=log,
                env={**os.environ, "PYTHONWARNINGS": "default"},
            )

    def kill_relay(self):
        self.relay.kill()
        self.relay.wait()
        self.relay = None

    async def relay_metric(self, session, name):
        """Sum of the relay's samples called `name`."""
        async with session.get(f"http://127.0.0.1:{self.relay_http_port}/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0].startswith(name)
        )

    def kill_picker(self):
        self.picker.kill()
        self.picker.wait()
        self.picker = None

    async def terminate_picker(self):
        """End the picker in good order; its exit status."""
        self.picker.terminate()
        status = await asyncio.to_thread(self.picker.wait, 45)
        self.picker = None
        return status

    def pause_picker(self):
        self.picker.send_signal(signal.SIGSTOP)

    def resume_picker(self):
        self.picker.send_signal(signal.SIGCONT)

    def stop(self):
        for process in (self.picker, self.relay, self.envoy):
            if process is not None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()

    def write_catalog(
        self, services: dict[GatewayConfig, list[str]], unready=None, revisions=None, terminating=()
    ):
        content = [
            {
                "config": encode(config),
                "addresses": addresses,
                "unready": (unready or {}).get(config, []),
                "revisions": revisions or {},
                "terminating": list(terminating),
            }
            for config, addresses in services.items()
        ]
        temporary = self.catalog_file.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        temporary.rename(self.catalog_file)

    def config(self, name, namespace="llm", models=(), **settings) -> GatewayConfig:
        key = f"{namespace}/{name}"
        return GatewayConfig(
            namespace=namespace,
            name=name,
            models=(*(models or (name,)), key),
            served_name=name,
            port=self.engine_port,
            sidecar_port=self.sidecar_port,
            **settings,
        )

    async def engine(self, number: int, **settings) -> Engine:
        address = f"127.0.{number // 250 + 1}.{number % 250 + 1}"
        return await Engine(address, self.engine_port, self.sidecar_port, **settings).start()

    async def apply(self, session, services: dict[GatewayConfig, list[Engine]]):
        """Make the catalog this one; wait until Envoy routes by it and the picker has every report."""
        self.write_catalog(
            {config: [engine.address for engine in engines] for config, engines in services.items()}
        )
        await until(lambda: self._has(session, services), "Envoy has the catalog")
        if self.picker is not None:
            await until(
                lambda: self._picker_has(session, services), "the picker is healthy and has the reports"
            )

    async def known(self, session, service, addresses):
        """Whether these are the engines of a service to Envoy."""
        return (await self._health(session))[service].keys() == addresses

    async def _clusters(self, session):
        """What Envoy's admin says of all clusters."""
        async with session.get(f"http://127.0.0.1:{self.admin_port}/clusters?format=json") as response:
            return (await response.json(content_type=None))["cluster_statuses"]

    async def _health(self, session):
        """Of each host of each cluster, whether Envoy's health check passes and no ejection keeps it out."""
        statuses = await self._clusters(session)
        failed = {"failed_active_health_check", "failed_outlier_check"}
        return {
            status["name"]: {
                host["address"]["socket_address"]["address"]: not failed & host["health_status"].keys()
                for host in status.get("host_statuses", [])
                if "socket_address" in host["address"]  # the relay's is another
            }
            for status in statuses
        }

    async def _has(self, session, services):
        try:
            async with session.get(f"{self.url}/v1/models") as response:
                listed = {model["id"] for model in (await response.json())["data"]}
            health = await self._health(session)
        except aiohttp.ClientError:
            return False
        hosts = {name: set(each) for name, each in health.items()}
        failing = {address for each in health.values() for address, passes in each.items() if not passes}
        if failing & {e.address for engines in services.values() for e in engines if e.runners and e.healthy}:
            return False
        wanted = {f"{c.namespace}/{c.name}": {e.address for e in engines} for c, engines in services.items()}
        models = {model for config in services for model in config.models}
        return listed == models and {k: v for k, v in hosts.items() if k in wanted} == wanted

    async def picker_answers(self, session, path):
        """Whether the picker's HTTP server says 200 to `path`."""
        try:
            async with session.get(f"http://127.0.0.1:{self.http_port}{path}") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def metric(self, session, name):
        """Sum of the picker's samples called `name`; 0 while it does not answer."""
        try:
            async with session.get(f"http://127.0.0.1:{self.http_port}/metrics") as response:
                lines = (await response.text()).splitlines()
        except aiohttp.ClientError:
            return 0.0
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.partition(" ")[0].startswith(name)
        )

    async def picks(self, session):
        """Whether the picker chooses engines now."""
        before = await self.metric(session, "headrace_gateway_picks_total")
        await posted(session, self.url + "/v1/chat/completions", chat("chat"))
        return await self.metric(session, "headrace_gateway_picks_total") > before

    async def envoy_stat(self, session, name):
        """Sum of Envoy's counters with this name."""
        url = f"http://127.0.0.1:{self.admin_port}/stats?format=json&filter=^{name}$"
        async with session.get(url) as response:
            return sum(stat["value"] for stat in (await response.json())["stats"])

    async def missed(self, session):
        """Requests so far that Envoy sent on without the picker, which was late or away."""
        return await self.envoy_stat(session, ".*ext_authz.failure_mode_allowed")

    async def in_time(self, session, send):
        """What `send()` gives once the picker was in time for all of its requests.

        While it is late, as on a starved machine, Envoy balances and refuses by itself: that is promised.
        """
        while True:
            before = await self.missed(session)
            try:
                found = await send()
            except (AssertionError, KeyError):  # an answer of an engine where a refusal was due
                if await self.missed(session) == before:
                    raise
            else:
                if await self.missed(session) == before:
                    return found

    async def envoys_connected(self, session):
        """Whether an Envoy asks this picker for its configuration."""
        return await self.metric(session, "headrace_gateway_envoys") > 0

    async def picker_healthy(self, session):
        """Whether Envoy's health check finds the picker."""
        return all((await self._health(session))["picker"].values())

    async def _picker_has(self, session, services):
        if not await self.picker_healthy(session):
            return False
        expected = sum(not engine.silent for engines in services.values() for engine in engines)
        async with session.get(f"http://127.0.0.1:{self.http_port}/metrics") as response:
            text = await response.text()
        fresh = sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("headrace_gateway_engines{") and 'state="reporting"' in line
        )
        return fresh == expected


def ask_pickers(document, addresses):
    """Have Envoy know the pickers at these addresses, as it does in a cluster by their headless Service."""
    for cluster in document["static_resources"]["clusters"]:
        if cluster["name"] not in {names.PICKER_CLUSTER, names.XDS_CLUSTER}:
            continue
        [group] = cluster["load_assignment"]["endpoints"]
        [host] = group["lb_endpoints"]
        group["lb_endpoints"] = [copy.deepcopy(host) for _ in addresses]
        for each, address in zip(group["lb_endpoints"], addresses, strict=True):
            each["endpoint"]["address"]["socket_address"]["address"] = address


def _picker_service(node):
    """How the filter asks the picker, wherever in Envoy's configuration it is."""
    if isinstance(node, dict) and "server_uri" in node:
        return node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return next((found for child in children if (found := _picker_service(child))), None)
