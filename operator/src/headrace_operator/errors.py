"""What can go wrong, by what shall happen next.

RefusedError        the user must act: Accepted=False, nothing owned is touched
  SpecInvalidError  the spec itself is wrong
TransientError      try again after `delay` seconds
ApiError            the API server answered with an error, or not at all; retried with backoff
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Root of the operator's errors."""


class RefusedError(HeadraceError):
    """The service cannot be as its spec asks; `reason` is the condition's word for it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SpecInvalidError(RefusedError):
    """A field of the spec is wrong; the message names it and the fix."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidSpec", message)


class TransientError(HeadraceError):
    """Not possible at this moment."""

    def __init__(self, message: str, delay: float) -> None:
        super().__init__(message)
        self.delay = delay


class ApiError(HeadraceError):
    """The API server refused or failed; `code` is the HTTP status, 0 when it could not be reached.

    `retry_after`: seconds for which it asked to be left alone.
    """

    def __init__(self, code: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
