"""Run the turn server of a group: `python -m headrace_engine.turns`; settings are `--help`'s."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys
import time
from pathlib import Path

from headrace_engine.turns.messages import NONCE_BYTES
from headrace_engine.turns.rules import LEASE_SECONDS, STARVATION_SECONDS, Turns
from headrace_engine.turns.server import CONNECTIONS, TurnServer

CHECK_SECONDS = 2.0


def answers(port: int) -> bool:
    """Tell whether a turn server at `port` of this machine greets who connects: one that hangs does not."""
    try:
        with socket.create_connection(("127.0.0.1", port), CHECK_SECONDS) as connection:
            return bool(connection.recv(NONCE_BYTES))
    except OSError:
        return False


def main() -> None:
    """Serve until SIGTERM or SIGINT; with `--check`, exit 0 if a server answers at the port, else 1."""
    parser = argparse.ArgumentParser(description="Turn server of the engines that share a GPU.")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen at (default %(default)s)")  # noqa: S104
    parser.add_argument("--port", type=int, default=9500, help="port to listen at (default %(default)s)")
    parser.add_argument(
        "--token-file", type=Path, help="the group's token in hexadecimal digits; needed to serve"
    )
    parser.add_argument(
        "--lease",
        type=float,
        default=LEASE_SECONDS,
        help="seconds; longer than any step (default %(default)s)",
    )
    parser.add_argument(
        "--starvation",
        type=float,
        default=STARVATION_SECONDS,
        help="seconds until who waits goes first (default %(default)s)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="serve nothing, but ask the server at the port if it answers",
    )
    chosen = parser.parse_args()
    if chosen.check:
        sys.exit(0 if answers(chosen.port) else 1)
    if chosen.token_file is None:
        parser.error("--token-file: give the file with the group's token")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    token = bytes.fromhex(chosen.token_file.read_text().strip())
    with socket.create_server((chosen.host, chosen.port), backlog=CONNECTIONS) as listener:
        server = TurnServer(listener, token, Turns(chosen.lease, chosen.starvation, time.time_ns()))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop())
        server.serve()


if __name__ == "__main__":
    main()
