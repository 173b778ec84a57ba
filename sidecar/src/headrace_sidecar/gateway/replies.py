"""Every error the gateway gives, in the shape that OpenAI's clients parse.

Three places answer for it and share these bodies: Envoy's direct responses (routes), Envoy's own failures
(local replies) and the picker (its refusals).
"""

from dataclasses import dataclass
from typing import Any

STAND_IN = {503: 424}  # how the picker tells Envoy of a status that Envoy would take for no answer


@dataclass(frozen=True, slots=True)
class Reply:
    """An error for the client; `retry_after` in whole seconds becomes the header of that name."""

    status: int
    code: str
    message: str
    retry_after: int | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body; its `type` follows from the status, as in OpenAI's API."""
        return error_body(self.status, self.code, self.message)


def error_body(status: int, code: str, message: str) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": _type(status), "param": None, "code": code}}


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"
