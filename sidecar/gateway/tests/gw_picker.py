"""Runs the real picker on a catalog file:

    python gw_picker.py FILE ADS_PORT PICKS_PORT HTTP_PORT [ADDRESS LEADER]

The file is read again and again; an empty one means that the catalog is not known yet. LEADER is a file with
the address of the picker that leads; it stands for the Lease. With it there are two pickers, at `PAIR`. Those
that the file `cut-off` beside FILE names are out of date after `STALE_SECONDS`, as without an API server.
"""

import asyncio
import json
import logging
import math
import sys
from pathlib import Path

import uvloop

from headrace_engine.contracts import GatewayConfig, decode
from headrace_gateway.catalog import Catalog, Publish, Service
from headrace_gateway.server import lead_alone, serve
from headrace_gateway.settings import Settings

PAIR = {"127.0.0.1", "127.0.0.2"}
STALE_SECONDS = 2.0


def file_source(path: Path, is_cut_off=lambda: False):
    async def run(publish: Publish) -> None:
        seen, catalog = "", None
        while True:
            text = await asyncio.to_thread(path.read_text)
            if text and text != seen:
                seen, catalog = text, read(text)
            if catalog is not None and not await asyncio.to_thread(is_cut_off):
                publish(catalog)
            await asyncio.sleep(0.02)

    return run


def file_election(path: Path, me: str):
    async def run(lead) -> None:
        led = False
        while True:
            now = await asyncio.to_thread(path.read_text) == me
            if now != led:
                led = now
                lead(led)
            await asyncio.sleep(0.02)

    return run


async def find_other():
    return PAIR - {address}


def read(text: str) -> Catalog:
    return Catalog.build(
        [
            Service(
                decode(GatewayConfig, each["config"]),
                tuple(each["addresses"]),
                unready=tuple(each.get("unready", ())),
                terminating=tuple(each.get("terminating", ())),
                revisions=dict.fromkeys((*each["addresses"], *each.get("terminating", ())), "one")
                | each.get("revisions", {}),
            )
            for each in json.loads(text)
        ]
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    ads_port, picks_port, http_port = map(int, sys.argv[2:5])
    address, leader = (*sys.argv[5:], "127.0.0.1", "")[:2]
    settings = Settings(
        address=address,
        ads_port=ads_port,
        picks_port=picks_port,
        peers_port=picks_port,
        http_port=http_port,
    )
    elect = file_election(Path(leader), address) if leader else lead_alone
    find = find_other if leader else None
    cut_off = Path(sys.argv[1]).with_name("cut-off")
    source = file_source(
        Path(sys.argv[1]), lambda: cut_off.exists() and address in cut_off.read_text().split()
    )
    uvloop.run(serve(settings, source, elect, STALE_SECONDS if leader else math.inf, find_peers=find))
