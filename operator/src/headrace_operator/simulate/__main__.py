"""The `headrace` command; `headrace simulate` is all of it."""

from __future__ import annotations

import importlib.util
import sys

NEEDED = ("rich", "numpy", "orjson")  # beyond what the operator needs


def main() -> int:
    """Run the command line; 2 with one line where something is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"headrace: {', '.join(missing)} not installed: pip install 'headrace-operator[simulate]'",
            file=sys.stderr,
        )
        return 2
    from headrace_operator.simulate import command  # noqa: PLC0415 it imports what may be missing

    return command.main()


if __name__ == "__main__":
    sys.exit(main())
