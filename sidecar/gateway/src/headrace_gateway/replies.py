"""Every error the gateway gives, in the shape that OpenAI's clients parse, and Anthropic's.

Three places answer for it and share these bodies: Envoy's direct responses (routes), Envoy's own failures
(local replies) and the picker (its refusals).
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """An error for the client; `param` is the field of the body that it is about, if it is about one.

    `retry_after` in whole seconds, and `allow`, become the headers of these names.
    """

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None
    allow: str = ""

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body; its `type` follows from the status, as in OpenAI's API."""
        return error_body(self.status, self.code, self.message, self.param)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that go with the body."""
        headers = {"content-type": "application/json"}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        return headers


def error_body(status: int, code: str | None, message: str, param: str | None = None) -> dict[str, Any]:
    """Make an error object in the shape of OpenAI's API, with what makes it one in Anthropic's, too."""
    return {
        "type": "error",
        "error": {"message": message, "type": _type(status), "param": param, "code": code},
    }


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def no_engine(service: str) -> Reply:
    """Make the answer where no engine of a service (`namespace/name`) is ready."""
    return Reply(503, "no_ready_engine", f"the service {service} has no ready engine", retry_after=5)


# What Envoy alone says, which fills in what stands between percent signs. Where a status may have several
# causes, `UNAVAILABLE` and those after it are what is said of the others.
NO_KEY = Reply(401, "invalid_api_key", "send a valid API key: `Authorization: Bearer KEY`")
RATE_LIMITED = Reply(
    429, "rate_limit_exceeded", "the service %ROUTE_NAME% has had as many requests of this minute as it takes"
)
NO_ENGINE = no_engine("%ROUTE_NAME%")
UNAVAILABLE = Reply(503, "service_unavailable", "%LOCAL_REPLY_BODY%")
TIMEOUT = Reply(504, "timeout", "%LOCAL_REPLY_BODY%")
GATEWAY_ERROR = Reply(500, "gateway_error", "%LOCAL_REPLY_BODY%")
NO_PATH = Reply(404, "path_not_found", "no such path")
INVALID = Reply(400, "invalid_request", "the gateway refused the request: %RESPONSE_CODE_DETAILS%")


# What the relay alone is told.
STAY = Reply(409, "stay", "the request had better stay with the engine that has it")


def too_large(limit: int | str) -> Reply:
    """Make the answer to a body of more bytes than `limit`."""
    return Reply(413, "request_too_large", f"the request body is larger than {limit} bytes")
