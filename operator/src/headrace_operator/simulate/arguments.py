"""Numbers on vLLM's command line, as far as its scheduler and its KV cache are concerned."""

from __future__ import annotations

import re

from headrace_operator.api.engine_arguments import Options
from headrace_operator.simulate.usage_error import UsageError

_MULTIPLIERS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}  # vLLM: 1k is 1,000 and 1K is 1,024


def parse_whole_number(options: Options, name: str, least: int = 1) -> int | None:
    """Read the number given for `name`, None without the option; raises UsageError."""
    if name not in options:
        return None
    text = (options[name] or "").strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", text)
    if match is None or ("." in match[1] and not match[2].islower()):
        raise _wrong(name, options[name], "a whole number such as 4096 or 4k")
    number, unit = match.groups()
    if not unit:
        value = int(number)
    elif unit.islower():
        value = int(float(number) * _MULTIPLIERS[unit])
    else:
        value = int(number) * 1024 ** ("KMGT".index(unit) + 1)
    if value < least:
        raise _wrong(name, options[name], f"at least {least}")
    return value


def parse_share(options: Options, name: str, otherwise: float) -> float:
    """Read the share from 0 up to 1 that is given for `name`; raises UsageError."""
    if name not in options:
        return otherwise
    try:
        value = float(options[name] or "")
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise _wrong(name, options[name], "a number from 0 to below 1")
    return value


def _wrong(name: str, given: str | None, wanted: str) -> UsageError:
    return UsageError(f"spec.engine.args: --{name}: {given!r} is not {wanted}")
