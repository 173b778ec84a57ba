"""What the relay tells Prometheus."""

from prometheus_client import Counter

_SERVICE = ("namespace", "service")

ENGINES_LOST = Counter(
    "headrace_relay_engines_lost", "Engines that were lost by streams that could go on", _SERVICE
)
RESUMED = Counter(
    "headrace_relay_streams_resumed", "Streams that lost an engine and were answered whole", _SERVICE
)
FAILED = Counter(
    "headrace_relay_streams_failed", "Streams that lost an engine and ended with an error", _SERVICE
)
