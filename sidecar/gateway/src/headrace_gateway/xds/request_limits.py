"""How many requests a minute a service takes, from everyone together and from each client.

Envoy's local rate limits: each Envoy counts what passes through it, and begins anew with a full minute's
requests when routes change. All routes of a service share one count, so limits stand beside the routes, and a
route only says which of them are its own.
"""

from collections.abc import Iterable
from typing import Any

from envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2
from google.protobuf import any_pb2

from headrace_engine.contracts import GatewayConfig
from headrace_gateway.headers import CLIENT_HEADER
from headrace_gateway.xds.filters import typed_config

FILTER = "envoy.filters.http.local_ratelimit"
MOST_CLIENTS = (
    10_000  # counted at once, of all services together; beyond, who came least recently starts anew
)
MINUTE = 60
_SERVICE, _CLIENT = "service", "client"
_STAT_PREFIX = "limits"
_ALWAYS = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}

Json = dict[str, Any]


def limiter() -> Json:
    """Make the filter, which by itself limits nothing."""
    message = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
    return typed_config(FILTER, message, stat_prefix=_STAT_PREFIX)


def has_limits(config: GatewayConfig) -> bool:
    """Tell whether a service has any limit."""
    return bool(config.requests_per_minute or config.requests_per_minute_per_client)


def count_actions(config: GatewayConfig) -> list[Json]:
    """Say as what the requests of a service are counted: for routes to it."""
    service = {"generic_key": {"descriptor_key": _SERVICE, "descriptor_value": _name(config)}}
    client = {"request_headers": {"header_name": CLIENT_HEADER, "descriptor_key": _CLIENT}}
    return [
        *([{"actions": [service]}] if config.requests_per_minute else []),
        *([{"actions": [service, client]}] if config.requests_per_minute_per_client else []),
    ]


def retry_after(config: GatewayConfig) -> int:
    """Return the seconds in which the tighter limit lets the next request pass."""
    limits = [each for each in (config.requests_per_minute, config.requests_per_minute_per_client) if each]
    return -(-MINUTE // min(limits))


def rate_limits(services: Iterable[GatewayConfig]) -> any_pb2.Any:
    """Make the rate limits of all services, for the whole route table."""
    packed = any_pb2.Any()
    packed.Pack(
        local_rate_limit_pb2.LocalRateLimit(
            stat_prefix=_STAT_PREFIX,
            filter_enabled=_ALWAYS,
            filter_enforced=_ALWAYS,
            token_bucket=_bucket(2**31),  # of what is counted as nothing
            always_consume_default_token_bucket={"value": False},
            descriptors=[descriptor for config in services for descriptor in _descriptors(config)],
            max_dynamic_descriptors={"value": MOST_CLIENTS},
        ),
        deterministic=True,
    )
    return packed


def _descriptors(config: GatewayConfig) -> list[Json]:
    service = {"key": _SERVICE, "value": _name(config)}
    anyone = {"key": _CLIENT}  # with a count for each
    found: list[Json] = []
    if config.requests_per_minute:
        found.append({"entries": [service], "token_bucket": _bucket(config.requests_per_minute)})
    if config.requests_per_minute_per_client:
        bucket = _bucket(config.requests_per_minute_per_client)
        found.append({"entries": [service, anyone], "token_bucket": bucket})
    return found


def _bucket(requests: int) -> Json:
    return {
        "max_tokens": requests,
        "tokens_per_fill": {"value": requests},
        "fill_interval": {"seconds": MINUTE},
    }


def _name(config: GatewayConfig) -> str:
    return f"{config.namespace}/{config.name}"
