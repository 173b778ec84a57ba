"""Which headers of a request or of an answer go on to the other side."""

from collections.abc import Mapping

from multidict import CIMultiDict

from headrace_gateway.headers import ENGINE_HEADER, LOST_HEADER, REVISION_HEADER

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "host",
        "content-length",
        "expect",
    }
)
_OURS = frozenset({ENGINE_HEADER, LOST_HEADER, REVISION_HEADER})


def passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers that concern both ends, in whatever order they came."""
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in _HOP_BY_HOP and name.lower() not in _OURS
    )
