"""How a process of the gateway begins: with a log, and with settings that are right."""

import logging
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from headrace_gateway.settings import Settings, SettingsError, read_settings


def launch(main: Callable[[Settings], Coroutine[Any, Any, None]]) -> None:
    """Run `main` with the environment's settings; one that is wrong, for it too, ends the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        uvloop.run(main(read_settings(os.environ)))
    except SettingsError as error:
        sys.exit(str(error))
