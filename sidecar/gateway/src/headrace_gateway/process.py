"""What every process of the gateway does: it settles after its start, and ends when it is told to."""

import asyncio
import gc
import signal

GRPC_OPTIONS = (
    ("grpc.so_reuseport", 0),
    # Envoy pings to notice a dead picker; gRPC's default is to hang up on who pings that often.
    ("grpc.http2.min_ping_interval_without_data_ms", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


def leave_to_stay() -> None:
    """Have the garbage collector look no more through what is there now: it would hold up picks."""
    gc.collect()
    gc.freeze()


async def stop_signal(feeding: asyncio.Task[None] | None = None) -> None:
    """Return on the first SIGTERM or SIGINT, or when `feeding`, the source of a catalog, has ended."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if feeding is not None:
        feeding.add_done_callback(lambda _task: stop.set())
    await stop.wait()
