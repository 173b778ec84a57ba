"""A proxy that stands between the operator and a real API server and does to it what networks do.

operator ──HTTP──► Proxy ──HTTPS──► API server
                     └ Script: which call or watch event meets which fault; counts each one
"""

from .proxy import Proxy
from .script import (
    Call,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fault,
    Gone,
    HalfOpen,
    Hang,
    Hold,
    Mute,
    Reset,
    Rule,
    Script,
    Status,
)

__all__ = [
    "Call",
    "Cut",
    "Delay",
    "Drop",
    "Duplicate",
    "Fault",
    "Gone",
    "HalfOpen",
    "Hang",
    "Hold",
    "Mute",
    "Proxy",
    "Reset",
    "Rule",
    "Script",
    "Status",
]
