"""Carry TCP connections from a listening socket to an address: `python -m e2e.cluster.forward HOST PORT FD`.

The socket was made on the machine's loopback and is inherited; this process runs in the cluster's network
namespace. A socket stays in the namespace that it was made in, so this is all it takes to reach into the
cluster without an interface, a route or a rule on the machine.
"""

import asyncio
import contextlib
import socket
import sys

_CHUNK = 1 << 16


async def serve(listener: socket.socket, host: str, port: int) -> None:
    """Forward every connection until cancelled."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(host, port)
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        writer.close()

    server = await asyncio.start_server(connection, sock=listener)
    await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction, and pass on its end."""
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


def main() -> None:
    """Forward from the inherited socket."""
    host, port, descriptor = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(socket.socket(fileno=int(descriptor)), host, int(port)))


if __name__ == "__main__":
    main()
