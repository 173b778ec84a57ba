"""How often the picker chose and refused, for Prometheus."""

from collections.abc import Iterable
from functools import lru_cache

from prometheus_client import Counter

from headrace_gateway import metrics
from headrace_gateway.names import service_labels
from headrace_gateway.pick.picker import Choice
from headrace_gateway.replies import Reply


def count(service: str, decision: Choice | Reply) -> None:
    """Count what was decided for a request to `service` (`namespace/name`)."""
    if isinstance(decision, Choice):
        _picks(service, decision.balancer).inc()
    else:
        metrics.REFUSALS.labels(*service_labels(service), decision.code).inc()


def forget(services: Iterable[str]) -> None:
    """Drop what was counted of services that are gone."""
    for service in services:
        metrics.forget(service)
        _picks.cache_clear()


@lru_cache(maxsize=1024)
def _picks(service: str, balancer: str) -> Counter:
    return metrics.PICKS.labels(*service_labels(service), balancer)
