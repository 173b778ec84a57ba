"""Routes that Envoy answers itself; the picker is not asked."""

import json
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from google.protobuf import any_pb2
from google.protobuf.message import Message

from headrace_gateway import names
from headrace_gateway.replies import Reply

Match = dict[str, Any]


def refusal_route(match: Match, reply: Reply) -> route_components_pb2.Route:
    """Make a route that answers with an error."""
    response: Match = {"status": reply.status, "body": {"inline_string": compact_json(reply.body)}}
    if "%" in reply.message:  # Envoy fills in what it knows of the request, escaped for JSON
        response["body_format"] = {"json_format": reply.body, "content_type": "application/json"}
    return direct_route(match, response, allow=reply.allow)


def direct_route(match: Match, response: Match, allow: str = "") -> route_components_pb2.Route:
    """Make a route that answers with JSON; `allow` becomes the header of that name."""
    headers = {"content-type": "application/json"} | ({"allow": allow} if allow else {})
    return route_components_pb2.Route(
        match=match,
        direct_response=response,
        response_headers_to_add=[set_header(name, value) for name, value in headers.items()],
        typed_per_filter_config={names.PICKER_FILTER: NO_PICKER},
    )


def compact_json(body: object) -> str:
    """Write JSON in ASCII, so that its length is its size in bytes."""
    return json.dumps(body, separators=(",", ":"))


def set_header(name: str, value: str) -> base_pb2.HeaderValueOption:
    """Make a header, instead of those of its name that there are."""
    return base_pb2.HeaderValueOption(
        header={"key": name, "value": value}, append_action="OVERWRITE_IF_EXISTS_OR_ADD"
    )


def _packed(message: Message) -> any_pb2.Any:
    found = any_pb2.Any()
    found.Pack(message)
    return found


NO_PICKER = _packed(ext_authz_pb2.ExtAuthzPerRoute(disabled=True))
NO_KEY = _packed(route_components_pb2.FilterConfig(disabled=True))
