"""vLLM's errors, in the shape that the gateway's own have.

vLLM gives the HTTP status as `code` where OpenAI has a word or null, words of its own as `type`, and
FastAPI's `{"detail": …}` for a path that it does not serve. Envoy rewrites them. An error in the middle of a
stream stays as vLLM sent it.
"""

from typing import Any

from headrace_gateway.replies import error_body
from headrace_gateway.xds.filters import typed_config

SHORT = r"\d{1,5}"  # content-length; longer errors are passed on unread, which bounds what Envoy parses
UNKNOWN_PATH = '{"detail":"Not Found"}'
_PATH_NOT_SERVED = "the engines of this model do not serve this path: they were started for another task"


def engine_errors() -> list[dict[str, Any]]:
    """Make the filters that rewrite errors of engines; Envoy's own pass, and so does what is no error.

    Answers meet them from the last to the first, and what is rewritten once has no content-length any more.
    """
    return [
        _rewrite("4..", SHORT, _vllms(400)),
        _rewrite("5..", SHORT, _vllms(500)),
        _rewrite("404", str(len(UNKNOWN_PATH)), error_body(404, "path_not_served", _PATH_NOT_SERVED)),
    ]


def _vllms(status: int) -> dict[str, Any]:
    """Make an error of what vLLM says, and of which field."""
    return error_body(status, None, "%RESPONSE_BODY(error:message)%", "%RESPONSE_BODY(error:param)%")


def _rewrite(status: str, length: str, body: dict[str, Any]) -> dict[str, Any]:
    """Put `body` over the JSON of an engine's answer with this status and content-length (regexes)."""
    transform = typed_config(
        "envoy.filters.http.transform",
        "envoy.extensions.filters.http.transform.v3.TransformConfig",
        response_transformation={
            "body_transformation": {"body_format": {"json_format": body}, "action": "MERGE"}
        },
    )
    meant = [
        _matches("HttpResponseHeaderMatchInput", status, header_name=":status"),
        _matches("HttpResponseLocalReplyMatchInput", "false"),
        _matches("HttpResponseHeaderMatchInput", length, header_name="content-length"),
    ]
    skip = typed_config("skip", "envoy.extensions.filters.common.matcher.action.v3.SkipFilter")
    other = {
        "predicate": {"not_matcher": {"and_matcher": {"predicate": meant}}},
        "on_match": {"action": skip},
    }
    return typed_config(
        f"engine_errors_{status.replace('.', 'x')}",
        "envoy.extensions.common.matching.v3.ExtensionWithMatcher",
        xds_matcher={"matcher_list": {"matchers": [other]}},
        extension_config=transform,
    )


def _matches(kind: str, regex: str, **settings: str) -> dict[str, Any]:
    value = {"safe_regex": {"google_re2": {}, "regex": regex}}
    read = typed_config(kind, f"envoy.type.matcher.v3.{kind}", **settings)
    return {"single_predicate": {"input": read, "value_match": value}}
