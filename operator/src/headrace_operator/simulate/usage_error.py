"""What stops the command: something the user can put right, said in one line."""

from __future__ import annotations

from headrace_operator.errors import HeadraceError


class UsageError(HeadraceError):
    """The command cannot do what was asked; the message names file or option, and the fix."""
