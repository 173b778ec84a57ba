"""What the relay tells Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

from headrace_gateway.names import SERVICE_LABELS

STREAMS = Counter("headrace_relay_streams", "Streams by whether another engine could go on", ["resumable"])
OPEN = Gauge("headrace_relay_open_streams", "Streams that pass through the relay")
HELD_BYTES = Gauge("headrace_relay_held_bytes", "Request bodies that are kept for another engine")
DELAY = Gauge("headrace_relay_delay_seconds", "How long what is ready waits for the relay, on average")
ENGINES_LOST = Counter(
    "headrace_relay_engines_lost", "Engines that were lost by streams that could go on", SERVICE_LABELS
)
RESUMED = Counter(
    "headrace_relay_streams_resumed", "Streams that lost an engine and were answered whole", SERVICE_LABELS
)
MOVED = Counter(
    "headrace_relay_streams_moved",
    "Streams that went on at another engine while theirs lived: it was Terminating, or they were Waiting "
    "there, or Running too slowly; and those that SteppedBack, where there was room",
    (*SERVICE_LABELS, "reason"),
)
WAITING = Gauge(
    "headrace_relay_waiting_streams",
    "Streams that stepped back, and wait for room at an engine",
    SERVICE_LABELS,
)
FAILED = Counter(
    "headrace_relay_streams_failed", "Streams that lost an engine and ended with an error", SERVICE_LABELS
)
PAUSE_SECONDS = Histogram(
    "headrace_relay_pause_seconds",
    "How long clients waited for the next token when their stream changed its engine",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
