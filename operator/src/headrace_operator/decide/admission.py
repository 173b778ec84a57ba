"""What the cluster's admission denies by policies, webhooks and quotas, told from other errors. Pure.

The API server's answer has no field that says who refused. An answer that its own authorisation gave is none:
it is the operator that lacks a permission then, whatever the spec says.
"""

from __future__ import annotations

import re

from headrace_operator.api import Reason
from headrace_operator.errors import ApiError, RefusedError

# `admission webhook "x" denied the request: …`, with any code that its author chose, and
# `ValidatingAdmissionPolicy 'x' with binding 'y' denied request: …`, likewise.
_DENIED = re.compile(
    r"admission webhook \"[^\"]*\" denied|ValidatingAdmissionPolicy '[^']*' .*denied request"
)
# Of a plain 403: roles, the rule about owners that cannot be deleted, and a namespace that goes.
_NOT_ADMISSION = re.compile(r'is forbidden: User "|cannot set blockOwnerDeletion|is being terminated')
_LONGEST = 1500  # characters
_FIRST_RETRY_SECONDS = 15.0  # seconds
LONGEST_RETRY_SECONDS = 60.0


def is_denial(error: ApiError) -> bool:
    """Tell whether a policy, a webhook or a quota said no, and not the API server itself."""
    text = str(error)
    if _DENIED.search(text):
        return 400 <= error.code < 500
    return error.code == 403 and not _NOT_ADMISSION.search(text)


def describe_denial(kind: str, name: str, error: ApiError, tried: int) -> RefusedError:
    """Tell the user of the denial; `tried`: how often in a row, which makes the next try later."""
    words = str(error).partition(": ")[2] or str(error)  # without the request
    words = words if len(words) <= _LONGEST else words[:_LONGEST] + "…"
    return RefusedError(
        Reason.ADMISSION_DENIED,
        f"{kind} {name} is denied by a policy, webhook or quota of this cluster: {words}; "
        "change the spec, or have that changed: it is tried again by itself",
        retry_after=min(_FIRST_RETRY_SECONDS * 2.0 ** (tried - 1), LONGEST_RETRY_SECONDS),
    )
