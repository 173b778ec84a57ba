"""Pass connections on, from one port of loopback to another: `forwarder.py FROM TO`; it runs by its path."""

import asyncio
import contextlib
import sys

HOST = "127.0.0.1"


async def main(listens: int, target: int) -> None:
    """Serve until it is ended."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection(HOST, target)
            await asyncio.gather(passed_on(reader, back), passed_on(there, writer))

    server = await asyncio.start_server(connected, HOST, listens)
    await server.serve_forever()


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, and hand that on too."""
    with contextlib.suppress(OSError):
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
