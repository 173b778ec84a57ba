"""Run the turn server of a group: `python -m headrace_engine.turns`; settings are `--help`'s."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import time
from pathlib import Path

from headrace_engine.turns.rules import Turns
from headrace_engine.turns.server import CONNECTIONS, TurnServer


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Turn server of the engines that share a GPU.")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen at (default %(default)s)")  # noqa: S104
    parser.add_argument("--port", type=int, default=9500, help="port to listen at (default %(default)s)")
    parser.add_argument(
        "--token-file", type=Path, required=True, help="the group's token in hexadecimal digits"
    )
    parser.add_argument(
        "--lease", type=float, default=2.0, help="seconds; longer than any step (default %(default)s)"
    )
    parser.add_argument(
        "--starvation",
        type=float,
        default=1.0,
        help="seconds until who waits goes first (default %(default)s)",
    )
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    token = bytes.fromhex(chosen.token_file.read_text().strip())
    with socket.create_server((chosen.host, chosen.port), backlog=CONNECTIONS) as listener:
        server = TurnServer(listener, token, Turns(chosen.lease, chosen.starvation, time.time_ns()))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop())
        server.serve()


if __name__ == "__main__":
    main()
