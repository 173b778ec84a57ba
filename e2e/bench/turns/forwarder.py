"""Pass connections on within loopback: `forwarder.py FROM TO`, each `[ADDRESS:]PORT`; it runs by its path."""

import asyncio
import contextlib
import sys

HOST = "127.0.0.1"


async def main(listens: tuple[str, int], target: tuple[str, int]) -> None:
    """Serve until it is ended."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection(*target)
            await asyncio.gather(passed_on(reader, back), passed_on(there, writer))

    server = await asyncio.start_server(connected, *listens)
    await server.serve_forever()


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, and hand that on too."""
    with contextlib.suppress(OSError):
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
    writer.close()


def read(told: str) -> tuple[str, int]:
    """Read an address and a port; the address is `HOST` unless told."""
    address, _, port = told.rpartition(":")
    return address or HOST, int(port)


if __name__ == "__main__":
    asyncio.run(main(read(sys.argv[1]), read(sys.argv[2])))
