"""`spec.engine.args` as vLLM reads its command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Options = Mapping[str, str | None]
"""By name without dashes; None for a switch that is on, `no-NAME` for one that is off."""


def parse_arguments(arguments: Iterable[str]) -> Options:
    """Read the options in `spec.engine.args`, the last of equal ones; both `--a=b` and `--a b`."""
    options: dict[str, str | None] = {}
    last: str | None = None
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            last = name.replace("_", "-")
            options.pop(last, None)  # the place in the order is the last one too
            options[last] = value if equals else None
        elif last is not None and options[last] is None:
            options[last] = argument
    return options


def is_switched_on(options: Options, name: str, *, otherwise: bool) -> bool:
    """Tell whether `--NAME` or `--no-NAME` was given last."""
    given = [option for option in options if option in (name, f"no-{name}")]
    return given[-1] == name if given else otherwise
