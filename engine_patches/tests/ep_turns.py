"""A turn server on loopback, for tests of those who take turns."""

import socket
import threading
import time
from contextlib import contextmanager

from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.turns.rules import Turns
from headrace_engine.turns.server import TurnServer

TOKEN = "5e" * 32


@contextmanager
def serving(port=0, *, lease=2.0, starvation=10.0):
    """A server on loopback; its turns and the group that engines join."""
    listener = socket.create_server(("127.0.0.1", port))
    turns = Turns(lease, starvation)
    server = TurnServer(listener, bytes.fromhex(TOKEN), turns)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield turns, TurnGroup("127.0.0.1", listener.getsockname()[1], TOKEN)
    finally:
        server.stop()
        thread.join()
        listener.close()


def settled(turns, seconds=5.0):
    """Whether nobody has the turn or waits for it, once the server has read what was sent to it."""
    deadline = time.monotonic() + seconds
    while turns.concerned and time.monotonic() < deadline:
        time.sleep(0.001)
    return not turns.concerned
