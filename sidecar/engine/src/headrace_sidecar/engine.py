"""The commands of the sidecar's image: `python3 -m headrace_sidecar.engine install|serve`.

Settings come from the environment (`read_settings`). Pod templates name this module, and pods of earlier
releases go on running with theirs, so it keeps its name.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from headrace_sidecar.install import InstallError, install_plugin
from headrace_sidecar.serve import serve
from headrace_sidecar.settings import SettingsError, read_settings

USAGE = """usage: python3 -m headrace_sidecar.engine install|serve
  install  put the plugin and the empty folders into HEADRACE_DIR, then exit
  serve    hand over the policy and report on the engine, until SIGTERM"""


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        match arguments:
            case ["install"]:
                root = read_settings(os.environ).root
                print(f"headrace-engine {install_plugin(root)} is ready in {root}")
            case ["serve"]:
                asyncio.run(serve(read_settings(os.environ)))
            case _:
                print(USAGE, file=sys.stderr)
                return 2
    except (SettingsError, InstallError, OSError) as error:
        print(f"headrace sidecar: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
