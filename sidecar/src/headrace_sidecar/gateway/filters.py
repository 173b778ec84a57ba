"""What Envoy does with one request before the router, and how it words its own failures.

In order: header hygiene, `model` read from the body into metadata, the picker's choice, the router.
"""

from typing import Any

from headrace_sidecar.gateway import names
from headrace_sidecar.gateway.replies import DETAILS_PREFIX, error_body

# Headers that only the gateway's own parts may set, or that change what vLLM or Envoy does with a request.
STRIPPED_PREFIXES = (
    "x-gateway-destination-endpoint",
    "x-envoy-",
    "x-vllm-",
    "x-data-parallel-",
    "x-headrace-ttft",
    "x-headrace-tbt",
    "x-headrace-jct",
    "x-headrace-output",
    "x-headrace-priority",
    "x-headrace-token",
)

PICKER_TIMEOUT = "0.25s"  # of one answer; then the request goes on without the picker


def header_hygiene() -> dict[str, Any]:
    """Removes what clients must not say, before anything reads it."""
    return typed(
        "envoy.http.early_header_mutation.header_mutation",
        "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        mutations=[
            {"remove_on_match": {"key_matcher": {"prefix": p, "ignore_case": True}}}
            for p in STRIPPED_PREFIXES
        ],
    )


def model_reader() -> dict[str, Any]:
    """Waits for the whole body, reads OpenAI's `model` and has the route chosen anew."""
    to = {"metadata_namespace": names.REQUEST_METADATA}
    return typed(
        "envoy.filters.http.json_to_metadata",
        "envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
        request_rules={
            "allow_content_types_regex": {"regex": r"(?i)application/json\s*(;.*)?"},
            "rules": [
                {
                    "selectors": [{"key": "model"}],
                    "on_present": {**to, "key": names.MODEL, "type": "STRING"},
                    "on_error": {**to, "key": names.PROBLEM, "value": names.MALFORMED},
                }
            ],
        },
    )


def picker_filter() -> dict[str, Any]:
    """Sends the headers, then the whole body; no answer in time means go on without."""
    return typed(
        names.EXT_PROC,
        "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": names.PICKER_CLUSTER}},
        failure_mode_allow=True,
        message_timeout=PICKER_TIMEOUT,
        processing_mode={
            "request_header_mode": "SEND",  # or the router would choose a host before the body is judged
            "request_body_mode": "BUFFERED",
            "request_trailer_mode": "SKIP",
            "response_header_mode": "SKIP",
            "response_body_mode": "NONE",
            "response_trailer_mode": "SKIP",
        },
        request_attributes=[names.ROUTE_ATTRIBUTE],
        metadata_options={"receiving_namespaces": {"untyped": [names.PICK_METADATA]}},
    )


def local_replies(limit: int | str) -> dict[str, Any]:
    """Envoy's own failures as OpenAI errors; direct responses and the picker's replies already are."""
    ours = (
        f"response.code_details == 'direct_response' || response.code_details.startsWith('{DETAILS_PREFIX}')"
    )
    envoys = {
        "name": "envoys_own",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
            "expression": f"!({ours})",
        },
    }

    def mapper(status: int, operator: str, code: str, text: str, *, retry: bool = False) -> dict[str, Any]:
        compare = {"op": operator, "value": {"default_value": status, "runtime_key": "headrace_local_reply"}}
        both = [{"status_code_filter": {"comparison": compare}}, {"extension_filter": envoys}]
        json_format = error_body(status, code, text)
        reply = {
            "filter": {"and_filter": {"filters": both}},
            "body_format_override": {"json_format": json_format, "content_type": "application/json"},
        }
        if retry:
            header = {"key": "retry-after", "value": "1"}
            reply["headers_to_add"] = [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]
        return reply

    return {
        "mappers": [
            mapper(413, "EQ", "request_too_large", f"the request body is larger than {limit} bytes"),
            mapper(503, "EQ", "service_unavailable", "%LOCAL_REPLY_BODY%", retry=True),
            mapper(504, "EQ", "timeout", "%LOCAL_REPLY_BODY%", retry=True),
            mapper(500, "GE", "gateway_error", "%LOCAL_REPLY_BODY%"),
            mapper(404, "EQ", "path_not_found", "no such path"),
            mapper(400, "GE", "invalid_request", "the gateway refused the request: %RESPONSE_CODE_DETAILS%"),
        ]
    }


def router() -> dict[str, Any]:
    """Sends the request on; tells engines and clients nothing of Envoy's own."""
    return typed(
        "envoy.filters.http.router",
        "envoy.extensions.filters.http.router.v3.Router",
        suppress_envoy_headers=True,
    )


def typed(name: str, message: str, **fields: Any) -> dict[str, Any]:
    """An extension's configuration, as Envoy names it."""
    return {"name": name, "typed_config": {"@type": f"type.googleapis.com/{message}", **fields}}
