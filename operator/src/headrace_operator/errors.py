"""What can go wrong, by what shall happen next.

RefusedError        the user must act: Accepted=False, pods stay as they are
  SpecInvalidError  the spec itself is wrong: nothing owned is touched
TransientError      try again after `delay` seconds
ApiError            the API server answered with an error, or not at all; retried with backoff
"""

from __future__ import annotations

from collections.abc import Sequence

# Bad request, forbidden, no such thing, too large, invalid; all others say that the API server is in trouble.
_OF_THE_OBJECT = {400, 403, 404, 405, 413, 422}


class HeadraceError(Exception):
    """Root of the operator's errors."""


class RefusedError(HeadraceError):
    """The service cannot be as its spec asks; `reason` is the condition's word for it.

    `again`: seconds after which it is worth another try although nothing of ours has changed.
    """

    def __init__(self, reason: str, message: str, retry_after: float = 15.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class SpecInvalidError(RefusedError):
    """A field of the spec is wrong; the message names it and the fix."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidSpec", message)


def combine_refusals(refused: Sequence[RefusedError]) -> RefusedError | None:
    """Combine refusals into one that tells of all, with the reason of the first; None if there is none."""
    if not refused:
        return None
    texts = dict.fromkeys(map(str, refused))
    return RefusedError(refused[0].reason, ". ".join(texts), min(error.retry_after for error in refused))


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

    @property
    def is_about_object(self) -> bool:
        """Whether it is about what was to be written, so that other objects can be written nevertheless."""
        return self.code in _OF_THE_OBJECT or "failed calling webhook" in str(self)
