"""What Envoy does with one request before the router, and how it words its own failures.

In order: header hygiene, `model` read from the body into metadata, the picker's choice, the router.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace_gateway import names, replies
from headrace_gateway.headers import DESTINATION_HEADER, LOST_HEADER, ROUTE_HEADER, STRIPPED_PREFIXES
from headrace_gateway.replies import Reply

JSON_TYPE = r"(?i)application/json\s*(;.*)?"
_RETRY = [{"key": "retry-after", "value": "1"}]
_LIMITED = [
    {"key": "retry-after", "value": f"%METADATA(ROUTE:{names.REQUEST_METADATA}:{names.RETRY_AFTER})%"}
]
_LOST = [*_RETRY, {"key": LOST_HEADER, "value": names.ENGINE_LOST}]
_BEARER = [{"key": "www-authenticate", "value": "Bearer"}]

ANOTHER_HOST: dict[str, Any] = {
    "name": "envoy.retry_host_predicates.previous_hosts",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    },
}
# After a try at the relay, the engines: that a dead one is to be left out, workers learn only a moment later.
ANOTHER_PRIORITY: dict[str, Any] = {
    "name": "envoy.retry_priorities.previous_priorities",
    "typed_config": {
        "@type": "type.googleapis.com/"
        "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
        "update_frequency": 1,
    },
}
# Only what no engine can have seen is tried again: a prompt that crashed one must not meet the next.
RETRIES: dict[str, Any] = {
    "retry_on": "connect-failure,refused-stream,reset-before-request",
    "num_retries": 3,
    "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.05s"},
    "host_selection_retry_max_attempts": 5,
    "retry_host_predicate": [ANOTHER_HOST],
}
PICKER_TIMEOUT = "0.25s"  # of one answer; then the request goes on without the picker


def header_hygiene() -> dict[str, Any]:
    """Make the filter that removes what clients must not say, before anything reads it."""
    return typed_config(
        "envoy.http.early_header_mutation.header_mutation",
        "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        mutations=[
            {"remove_on_match": {"key_matcher": {"prefix": p, "ignore_case": True}}}
            for p in STRIPPED_PREFIXES
        ],
    )


def model_reader() -> dict[str, Any]:
    """Make the filter that waits for the body, reads what routes depend on, and has a route chosen anew.

    Also without a body: routes depend on the client's name too, which Envoy learns after its first choice.
    """
    to = {"metadata_namespace": names.REQUEST_METADATA}
    return typed_config(
        "envoy.filters.http.json_to_metadata",
        "envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
        request_rules={
            "allow_content_types_regex": {"regex": JSON_TYPE},
            "allow_empty_content_type": True,
            "rules": [
                {
                    "selectors": [{"key": "model"}],
                    "on_present": {**to, "key": names.MODEL, "type": "STRING"},
                    "on_missing": {**to, "key": names.NAMELESS, "value": True},
                    "on_error": {**to, "key": names.PROBLEM, "value": names.MALFORMED},
                },
                {
                    "selectors": [{"key": "n"}],
                    "on_present": {**to, "key": names.CHOICES, "type": "STRING"},
                    "on_error": {**to, "key": names.PROBLEM, "value": names.MALFORMED},
                },
                {
                    "selectors": [{"key": "stream"}],
                    "on_present": {**to, "key": names.STREAM},
                    "on_error": {**to, "key": names.PROBLEM, "value": names.MALFORMED},
                },
            ],
        },
    )


def picker_filter(
    max_body_bytes: int | str, headers: Sequence[str], service: str = "%ROUTE_NAME%"
) -> dict[str, Any]:
    """Send the picker the whole body, and these headers; no answer in time means go on without.

    `service` is how Envoy names the service that a request is for.
    """
    return typed_config(
        names.PICKER_FILTER,
        "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
        http_service={
            "server_uri": {
                "uri": f"http://{names.PICKER_CLUSTER}",
                "cluster": names.PICKER_CLUSTER,
                "timeout": PICKER_TIMEOUT,
            },
            "path_prefix": names.PICK_PATH,
            "authorization_request": {"headers_to_add": [{"key": ROUTE_HEADER, "value": service}]},
            "authorization_response": {
                "dynamic_metadata_from_headers": _exactly(DESTINATION_HEADER),
                "allowed_client_headers": _exactly("content-type", "retry-after"),
            },
            "retry_policy": {
                "retry_on": "connect-failure,refused-stream,reset",
                "num_retries": 1,
                # Envoy gives up a try after `max_interval`: not before the whole is given up.
                "retry_back_off": {"base_interval": "0.001s", "max_interval": PICKER_TIMEOUT},
                "retry_host_predicate": [ANOTHER_HOST],
                # A dead picker has the fewest requests, so it is drawn again and again.
                "host_selection_retry_max_attempts": 20,
            },
        },
        failure_mode_allow=True,
        disallowed_headers=_exactly("authorization"),  # the picker has no use for a client's key
        **({"allowed_headers": _exactly(*headers)} if headers else {}),
        with_request_body={"max_request_bytes": max_body_bytes, "pack_as_bytes": True},
    )


def _exactly(*headers: str) -> dict[str, Any]:
    return {"patterns": [{"exact": header} for header in headers]}


def local_replies(limit: int | str, *, to_relay: bool = False) -> dict[str, Any]:
    """Make OpenAI errors of Envoy's own failures; direct responses and the picker's replies already are.

    The relay is also told, in a header, whether an engine was lost, or none is to be had.
    """
    no_engine = replies.no_engine("%UPSTREAM_CLUSTER%") if to_relay else replies.NO_ENGINE
    refused = "response.code_details == 'ext_authz_denied'"
    envoys = f"!(response.code_details == 'direct_response' || {refused})"

    def mapper(
        reply: Reply,
        operator: str = "EQ",
        *,
        headers: Sequence[Mapping[str, str]] = (),
        only: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        both = [
            status_filter(operator, reply.status),
            _expression("envoys_own", envoys),
            *([only] if only else []),
        ]
        mapped = {
            "filter": {"and_filter": {"filters": both}},
            "body_format_override": {"json_format": reply.body, "content_type": "application/json"},
        }
        if headers:
            mapped["headers_to_add"] = [
                {"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"} for header in headers
            ]
        return mapped

    return {
        "mappers": [
            mapper(replies.NO_KEY, headers=_BEARER),
            mapper(replies.RATE_LIMITED, headers=_LIMITED),
            mapper(replies.too_large(limit)),
            # However it shows that there is none: nobody passes the health check, or who did just refuses.
            mapper(
                no_engine,
                headers=[
                    {"key": "retry-after", "value": str(no_engine.retry_after)},
                    *([{"key": LOST_HEADER, "value": names.NO_ENGINE}] if to_relay else []),
                ],
                only=_flags("UH", "UF"),
            ),
            *([mapper(replies.UNAVAILABLE, headers=_LOST, only=_flags("UC", "UR"))] if to_relay else []),
            mapper(replies.UNAVAILABLE, headers=_RETRY),
            mapper(replies.TIMEOUT, headers=_RETRY),
            mapper(replies.GATEWAY_ERROR, "GE"),
            mapper(replies.NO_PATH),
            mapper(replies.INVALID, "GE"),
        ]
    }


def _flags(*flags: str) -> dict[str, Any]:
    return {"response_flag_filter": {"flags": list(flags)}}


def _expression(name: str, expression: str) -> dict[str, Any]:
    kind = "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"
    return {"extension_filter": {"name": name, "typed_config": {"@type": kind, "expression": expression}}}


def status_filter(operator: str, status: int) -> dict[str, Any]:
    """Make the filter of access logs and local replies that compares the answer's status."""
    value = {"default_value": status, "runtime_key": "headrace_status"}
    return {"status_code_filter": {"comparison": {"op": operator, "value": value}}}


def router() -> dict[str, Any]:
    """Make the filter that sends the request on, and tells engines and clients nothing of Envoy's own."""
    return typed_config(
        "envoy.filters.http.router",
        "envoy.extensions.filters.http.router.v3.Router",
        suppress_envoy_headers=True,
    )


def typed_config(name: str, message: str, **fields: Any) -> dict[str, Any]:
    """Wrap an extension's configuration with its type, as Envoy wants it."""
    return {"name": name, "typed_config": {"@type": f"type.googleapis.com/{message}", **fields}}
