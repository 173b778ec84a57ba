"""The real picker on a file, for the benchmark: `python -m e2e.bench.gateway.picker FILE ADS PICKS HTTP`.

All is as in a cluster but the source of the catalog: a JSON list of {"config": GatewayConfig, "addresses":
[IP], "terminating": [IP], optional, "since": time, optional}, read again whenever it changes. The last three
are ports. With `--all` there is a picker at each of these addresses, and the first leads.
"""

import argparse
import asyncio
import logging
from pathlib import Path

import orjson
import uvloop

from headrace_engine.contracts import GatewayConfig, decode
from headrace_gateway.catalog import Catalog, Publish, Service
from headrace_gateway.kube.lease import Lead
from headrace_gateway.server import Source, serve
from headrace_gateway.settings import Settings

POLL_SECONDS = 0.02


def main() -> None:
    """Serve as the picker until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("catalog", type=Path)
    parser.add_argument("ports", type=int, nargs=3)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--all", nargs="*", default=[])
    chosen = parser.parse_args()
    ads, picks, http = chosen.ports
    logging.basicConfig(level=logging.WARNING)
    settings = Settings(
        address=chosen.address, ads_port=ads, picks_port=picks, peers_port=picks, http_port=http
    )
    others = [address for address in chosen.all if address != chosen.address]

    async def find() -> list[str]:
        return others

    async def elect(lead: Lead) -> None:
        lead(chosen.address in chosen.all[:1] or not others)

    find_peers = find if others else None
    uvloop.run(serve(settings, file_source(chosen.catalog), elect, find_peers=find_peers))


def file_source(path: Path) -> Source:
    """Publishes the file's catalog, and again when the file was replaced."""

    def changed_since(seen: int) -> int:
        """Return when the file was written, if not at `seen`; 0 otherwise."""
        written = path.stat().st_mtime_ns
        return written if written != seen else 0

    async def run(publish: Publish) -> None:
        seen = 0
        while True:
            if written := changed_since(seen):
                seen = written
                publish(read_catalog(path))
            await asyncio.sleep(POLL_SECONDS)

    return run


def read_catalog(path: Path) -> Catalog:
    """Read the catalog from a file."""
    return Catalog.build(
        Service(
            decode(GatewayConfig, each["config"]),
            tuple(each["addresses"]),
            each.get("since", ""),
            terminating=tuple(each.get("terminating", ())),
            revisions=dict.fromkeys((*each["addresses"], *each.get("terminating", ())), "one"),
        )
        for each in orjson.loads(path.read_bytes())
    )


if __name__ == "__main__":
    main()
