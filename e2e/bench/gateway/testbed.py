"""The gateway under test, on loopback: Envoy and picker, a plain Envoy beside them, and the engines' process.

Envoy has the project's own bootstrap and gets its routes from the picker over ADS, as in a cluster; the
picker reads its catalog from a file. The plain Envoy has the same listener settings, no filters but the
router, and balances the same engines by round robin. All are children of this process, ended by their ids.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e import ports
from e2e.bench.gateway.http1 import Target
from e2e.bench.gateway.settings import BALANCERS, ENGINES, service
from headrace_engine.contracts import encode
from headrace_engine.contracts.gateway_config import Balancer
from headrace_gateway.xds.bootstrap import Bootstrap, bootstrap
from headrace_gateway.xds.filters import router, typed_config

HOST = "127.0.0.1"
READY_SECONDS = 20.0
PORTS = (
    "gateway",
    "ready",
    "admin",
    "ads",
    "picks",
    "http",
    "plain",
    "engine",
    "sidecar",
    "relay_http",
)
END_SECONDS = 5.0
MOST_MISSED = 0.01  # share of requests


class TestbedError(RuntimeError):
    """The gateway could not be started, or fails; the message says what and where its log is."""


class BusyError(TestbedError):
    """Other work kept the machine so busy that a measurement says nothing."""


@dataclass(slots=True)
class Testbed:
    """Processes, ports and files of one gateway."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = dict(zip(PORTS, ports.free(len(PORTS)), strict=True))

    @property
    def gateway(self) -> Target:
        """Where Envoy with the picker listens."""
        return Target(HOST, self.ports["gateway"])

    @property
    def plain(self) -> Target:
        """Where Envoy without a picker listens."""
        return Target(HOST, self.ports["plain"])

    def start_engines(self, kind: str, addresses: Sequence[str]) -> None:
        """Start the engines' process; `kind` as in `engines`."""
        ports = (str(self.ports["engine"]), str(self.ports["sidecar"]))
        module = ("-m", "e2e.bench.gateway.engines")
        process = self.start("engines", [sys.executable, *module, kind, *ports, *addresses], reads=True)
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise TestbedError(f"the engines did not start: see {self.folder / 'engines.log'}")

    def serve_instantly(self) -> list[str]:
        """Start engines that answer at once, for a service `chat`; returns their addresses."""
        addresses = engine_addresses(0, ENGINES)
        self.start_engines("instant", addresses)
        self.apply({"chat": (BALANCERS[0], addresses)})
        return addresses

    def start_picker(self, name: str = "picker", *others: str) -> None:
        """Start a picker in a process of its own; `others` are more of its options."""
        ports = [str(self.ports[port]) for port in ("ads", "picks", "http")]
        module = ("-m", "e2e.bench.gateway.picker")
        self.start(name, [sys.executable, *module, str(self.folder / "catalog.json"), *ports, *others])

    def start_envoy(self, edit: Callable[[dict[str, Any]], None] | None = None, **others: Any) -> None:
        """Start the gateway's Envoy with `others` of the bootstrap's settings, its document edited."""
        settings = Bootstrap(
            picker_host=HOST,
            ads_port=self.ports["ads"],
            picks_port=self.ports["picks"],
            address=HOST,
            port=self.ports["gateway"],
            ready_port=self.ports["ready"],
            admin_port=self.ports["admin"],
            relay_folder=str(self.folder),
            **others,
        )
        document = bootstrap(settings)
        if edit is not None:
            edit(document)
        self._envoy("envoy", document)

    def start_relay(self, key: Path) -> None:
        """Start the relay beside the gateway's Envoy; `key` is the file that it signs with."""
        module = ("-m", "e2e.bench.gateway.relay")
        others = (str(self.folder), str(self.ports["relay_http"]))
        self.start("relay", [sys.executable, *module, str(key), *others])

    def start_plain(self, addresses: Sequence[str]) -> None:
        """Start the Envoy without a picker."""
        hosts = [(address, self.ports["engine"]) for address in addresses]
        self._envoy("plain", plain_bootstrap(self.ports["plain"], hosts))

    def apply(self, services: Mapping[str, tuple[Balancer, Sequence[str]]], **others: Any) -> None:
        """Give the picker its services: name → balancer and engines' addresses; `others`: of all configs."""
        ports = (self.ports["engine"], self.ports["sidecar"])
        catalog = [
            {"config": encode(service(name, balancer, *ports, **others)), "addresses": list(addresses)}
            for name, (balancer, addresses) in services.items()
        ]
        new = self.folder / "catalog.new"
        new.write_text(json.dumps(catalog))
        new.rename(self.folder / "catalog.json")

    async def ready(self, engines: int) -> None:
        """Wait until Envoy serves and the picker has a report of so many engines; raises TestbedError."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    log = (self.folder / f"{name}.log").read_text(errors="replace").strip()
                    raise TestbedError(f"{name} ended at once: {log[-500:]}")
            if self.picker_metric("headrace_gateway_engines", 'state="reporting"') == engines:
                status, _ = await asyncio.to_thread(_get, f"http://{HOST}:{self.ports['ready']}/ready")
                if status == 200 and await asyncio.to_thread(self._picker_healthy):
                    return
            if time.monotonic() > deadline:
                raise TestbedError(f"the gateway was not ready in {READY_SECONDS:g} s: see {self.folder}")
            await asyncio.sleep(0.05)

    def picker_metric(self, name: str, label: str = "") -> float:
        """Add up the picker's samples of this name and with this label; 0 while it does not answer."""
        return self._metric("http", name, label)

    def relay_metric(self, name: str) -> float:
        """Add up the relay's samples of this name; 0 while it does not answer."""
        return self._metric("relay_http", name)

    def _metric(self, port: str, name: str, label: str = "") -> float:
        _, text = _get(f"http://{HOST}:{self.ports[port]}/metrics")
        lines = [line for line in text.splitlines() if line.startswith(name) and label in line]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def envoy_stat(self, name: str) -> int:
        """Return the gateway's Envoy's counter of this name; raises ValueError while it does not answer."""
        _, text = _get(f"http://{HOST}:{self.ports['admin']}/stats?format=json&filter=^{name}$")
        return sum(int(stat["value"]) for stat in json.loads(text)["stats"])

    def picks(self) -> float:
        """Return for how many requests the picker chose so far."""
        return self.picker_metric("headrace_gateway_picks_total")

    def check_picks(self, before: float, requests: int) -> None:
        """Raise BusyError if Envoy chose by itself for more than a few of the requests since `before`."""
        missed = requests - (self.picks() - before)
        if missed > MOST_MISSED * requests:
            raise BusyError(
                f"the picker answered too late for {missed:.0f} of {requests} requests: other work keeps"
                " this machine busy; run again when it is quiet"
            )

    def cpu_seconds(self, name: str) -> float:
        """Return CPU time of a process so far."""
        return cpu_seconds(self.processes[name].pid)

    def kill(self, name: str) -> None:
        """End a process without letting it say farewell."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, *names: str) -> None:
        """End these processes, or all."""
        going = [self.processes.pop(name) for name in names or tuple(self.processes)]
        for process in going:
            process.terminate()
        for process in going:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _picker_healthy(self) -> bool:
        _, text = _get(f"http://{HOST}:{self.ports['admin']}/clusters")
        flags = [line for line in text.splitlines() if line.startswith("picker::") and "health_flags" in line]
        return bool(flags) and all(line.endswith("::healthy") for line in flags)

    def _envoy(self, name: str, document: dict[str, Any]) -> None:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(document))
        identity = ("--service-node", "bench", "--service-cluster", "headrace")
        flags = ("--concurrency", "1", "-l", "warning", "--disable-hot-restart")
        self.start(name, [envoy_binary(), "-c", str(path), *identity, *flags])

    def start(
        self,
        name: str,
        command: list[str],
        *,
        reads: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process that ends with the testbed; what it prints goes to `folder/name.log` or is read.

        Its environment is this process' own, or exactly `environment`.
        """
        with (self.folder / f"{name}.log").open("ab") as log:
            output = subprocess.PIPE if reads else log
            process = subprocess.Popen(command, stdout=output, stderr=log, env=environment)
        self.processes[name] = process
        return process


@contextlib.contextmanager
def start_testbed(folder: Path) -> Iterator[Testbed]:
    """Start a testbed whose processes end with the context, also on Ctrl-C."""
    made = Testbed(folder)
    try:
        yield made
    finally:
        made.stop()


def engine_addresses(first: int, count: int) -> list[str]:
    """Return loopback addresses of engines, from number `first` on."""
    return [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(first, first + count)]


def plain_bootstrap(port: int, hosts: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Return an Envoy that only forwards."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}
    manager = typed_config(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="plain",
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        http_filters=[router()],
    )
    listener = {"name": "plain", "address": _address(HOST, port), "filter_chains": [{"filters": [manager]}]}
    endpoints = [{"endpoint": {"address": _address(*host)}} for host in hosts]
    cluster = {
        "name": "engines",
        "type": "STATIC",
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": {"cluster_name": "engines", "endpoints": [{"lb_endpoints": endpoints}]},
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def envoy_binary() -> str:
    """Find Envoy beside this Python or on the path; raises TestbedError."""
    beside = Path(sys.executable).parent / "envoy"
    found = str(beside) if beside.exists() else shutil.which("envoy")
    if found is None:
        raise TestbedError("there is no `envoy` in this environment: run `make env`")
    return found


def cpu_seconds(pid: int) -> float:
    """Return the time that the threads of a process were on a CPU, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident_bytes(pid: int) -> int:
    """Return resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}
