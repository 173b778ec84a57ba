"""The other pickers: each tells all others what it sent where, at once, so that every one of them may choose.

In datagrams: to wait for who is slow or gone would hold up picks, and what is lost the engines' next reports
tell. They are taken from pickers only, which are those that the picker's headless Service names.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import cast

from headrace_gateway import metrics
from headrace_gateway.pick.picker import Picker
from headrace_gateway.pick.placement import Placement, decode, encode
from headrace_gateway.settings import Settings

log = logging.getLogger(__name__)

FIND_SECONDS = 1.0  # between two looks at who there is
ANSWER_SECONDS = 5.0  # that a look may take

Find = Callable[[], Awaitable[Iterable[str]]]  # gives the IP addresses of all other pickers; raises OSError


class Peers(asyncio.DatagramProtocol):
    """Shares placements with the pickers at `addresses`, which listen on the same port."""

    def __init__(self, port: int, take_in: Callable[[str, Placement], None]) -> None:
        self.addresses: frozenset[str] = frozenset()
        self._port = port
        self._take_in = take_in
        self._transport: asyncio.DatagramTransport | None = None
        self._misheard: set[str] = set()

    async def start(self, address: str) -> None:
        """Listen at an IP address; raises OSError."""
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, (address, self._port))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what datagrams are sent by."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def close(self) -> None:
        """Listen and tell no more."""
        if self._transport is not None:
            self._transport.close()
        self._transport = None

    async def follow(self, find: Find) -> None:
        """Look for ever who the others are; while that cannot be known they stay who they were."""
        told = ""
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    self.addresses = frozenset(await find())
            except OSError as error:  # TimeoutError too
                state = f"unknown: {str(error) or type(error).__name__}"
            else:
                state = ", ".join(sorted(self.addresses)) or "none"
                metrics.PEERS.set(len(self.addresses))
            if state != told:
                log.info("other pickers: %s", state)
            told = state
            await asyncio.sleep(FIND_SECONDS)

    def share(self, service: str, placement: Placement) -> None:
        """Tell all others."""
        if self.addresses and self._transport is not None:
            datagram = encode(service, placement)
            for address in self.addresses:
                self._transport.sendto(datagram, (address, self._port))

    def datagram_received(self, data: bytes, sender: tuple[str, int]) -> None:
        """Take in what another picker tells."""
        if sender[0] not in self.addresses:
            return  # not a picker, or one that is not yet known
        try:
            service, placement = decode(data)
        except ValueError as error:
            if sender[0] not in self._misheard:  # another release; it goes on for each of its requests
                self._misheard.add(sender[0])
                log.warning("what the picker at %s tells cannot be read: %s", sender[0], error)
            return
        metrics.PEER_PLACEMENTS.inc()
        self._take_in(service, placement)

    def error_received(self, exc: Exception) -> None:
        """Ignore that somebody is gone: `follow` will see it."""


@asynccontextmanager
async def sharing(picker: Picker, settings: Settings, find: Find | None) -> AsyncIterator[None]:
    """Have a picker tell those whom `find` gives what it places, and hear from them; raises OSError.

    None is for a picker that is alone.
    """
    if find is None:
        yield
        return
    peers = Peers(settings.peers_port, picker.take_in)
    await peers.start(settings.address)
    picker.share = peers.share
    following = asyncio.create_task(peers.follow(find))
    try:
        yield
    finally:
        following.cancel()
        peers.close()


def by_name(host: str, me: str) -> Find:
    """Find the pickers as the addresses that a host name has, but for `me`."""

    async def find() -> Iterable[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
        return {str(address[0]) for *_, address in found} - {me}

    return find
