"""`spec.engine.args` as vLLM reads its command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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


def with_option(arguments: Sequence[str], name: str, value: str | None) -> tuple[str, ...]:
    """Return the arguments with `--NAME=VALUE` in place of what there is of that name; None: without it."""
    if parse_arguments(arguments).get(name) == value:
        return tuple(arguments)
    new = () if value is None else (f"--{name}={value}",)
    kept: list[str] = []
    place, dropping = None, False
    for argument in arguments:
        if argument.startswith("--"):
            dropping = argument[2:].partition("=")[0].replace("_", "-") == name
        if not dropping:
            kept.append(argument)
        elif place is None:
            place = len(kept)
    place = len(kept) if place is None else place
    return *kept[:place], *new, *kept[place:]


def is_switched_on(options: Options, name: str, *, otherwise: bool) -> bool:
    """Tell whether `--NAME` or `--no-NAME` was given last."""
    given = [option for option in options if option in (name, f"no-{name}")]
    return given[-1] == name if given else otherwise
