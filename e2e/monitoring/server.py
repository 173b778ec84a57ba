"""A real Prometheus process on loopback, with its data in a temporary folder."""

import contextlib
import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

from e2e import ports
from e2e.cluster import packages
from e2e.monitoring.queries import Query

Series = dict[str, Any]  # {"metric": labels, "value" or "values": …}


class Prometheus:
    """Entering starts it and waits until it is ready; leaving ends it. Its log is `folder`/prometheus.log.

    `network` is the command prefix of another network namespace, whose pods it scrapes from there.
    """

    def __init__(
        self,
        folder: Path,
        scrape_configs: Sequence[Mapping[str, Any]],
        rules: Sequence[Path] = (),
        network: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._config = {
            "global": {"evaluation_interval": "1s"},
            "scrape_configs": [*scrape_configs],
            "rule_files": [str(rule) for rule in rules],
        }
        self._network = network
        self._stack = contextlib.ExitStack()
        self.url = ""  # once it is entered

    def __enter__(self) -> Self:
        config = self._folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(self._config, sort_keys=False))
        host, (port,) = "127.0.0.1", ports.free(1)
        if self._network:
            with socket.create_server((host, port)) as listener:
                descriptor = listener.fileno()
                forward = ("-m", "e2e.cluster.forward", host, str(port), str(descriptor))
                self._start(sys.executable, *forward, pass_fds=[descriptor])
        self.url = f"http://{host}:{port}"
        prometheus = self._start(
            str(packages.path("prometheus")),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={host}:{port}",
        )
        deadline = time.monotonic() + 60
        while not self._ready():
            if prometheus.poll() is not None or time.monotonic() > deadline:
                self._stack.close()
                raise RuntimeError((self._folder / "prometheus.log").read_text()[-3000:])
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        """Query the series an expression gives at unix time `at`, or now; ValueError for a wrong one."""
        moment = {} if at is None else {"time": f"{at:.3f}"}
        return self._get("query", query=expression, **moment)["result"]  # type: ignore[no-any-return]

    def rules(self) -> list[dict[str, Any]]:
        """Fetch every rule with its health and last error."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def series(self, selector: str) -> list[dict[str, str]]:
        """Fetch the labels of every series that a selector matches."""
        return self._get("series", **{"match[]": selector})  # type: ignore[no-any-return]

    def targets(self) -> list[dict[str, Any]]:
        """Fetch what is scraped, with health and last error."""
        return self._get("targets")["activeTargets"]  # type: ignore[no-any-return]

    def _get(self, path: str, **parameters: str) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, trust_env=False, timeout=30)
        body = answer.json()
        if body["status"] != "success":
            raise ValueError(f"{parameters}: {body['error']}")
        return body["data"]

    def _start(self, *command: str, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        """Start a process that ends with the block."""
        with (self._folder / "prometheus.log").open("ab") as log:
            process = subprocess.Popen([*self._network, *command], stdout=log, stderr=log, pass_fds=pass_fds)
        self._stack.callback(process.wait, 30)
        self._stack.callback(process.terminate)
        return process

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


def unanswered(server: Prometheus, queries: Iterable[Query], at: float | None = None) -> list[Query]:
    """List the queries to which there is no number at unix time `at`, or now."""
    return [query for query in queries if not any(map(math.isfinite, _values(server, query, at)))]


def _values(server: Prometheus, query: Query, at: float | None) -> list[float]:
    return [float(series["value"][1]) for series in server.query(query.expression, at)]
