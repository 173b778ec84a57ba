"""What the gateway sets itself no client may, and what clients may set comes through."""

from headrace_engine.contracts import request_overrides
from headrace_gateway.headers import (
    CLIENT_HEADER,
    DESTINATION_HEADER,
    ROUTE_HEADER,
    SERVICE_HEADER,
    STRIPPED_PREFIXES,
)


def test_what_the_gateway_sets_is_removed_from_requests():
    assert {CLIENT_HEADER, DESTINATION_HEADER, ROUTE_HEADER} <= set(STRIPPED_PREFIXES)


def test_what_clients_may_set_is_left():
    of_clients = [SERVICE_HEADER, *map(request_overrides.header_name, request_overrides.OVERRIDES)]
    assert not [header for header in of_clients if header.startswith(STRIPPED_PREFIXES)]
