"""Wait for an API server to be ready, and show the ends of the logs if it will not be."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from .components import Files

_SECONDS = 180.0


def is_ready(files: Files, url: str) -> bool:
    """Tell whether every start-up hook is done: before, some default RBAC objects are missing."""
    trust = ssl.create_default_context(cafile=str(files.authority))
    request = urllib.request.Request(
        f"{url}/readyz", headers={"Authorization": f"Bearer {files.admin_token}"}
    )
    try:
        with urllib.request.urlopen(request, context=trust, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def wait_ready(files: Files, url: str, check: Callable[[], None] = lambda: None) -> None:
    """Wait until the API server at `url` is ready; `check` raises when there is no use in waiting.

    Raises TimeoutError with the ends of the logs after three minutes.
    """
    deadline = time.monotonic() + _SECONDS
    while not is_ready(files, url):
        check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the API server was not ready in {_SECONDS:.0f} s:\n{log_tails(files.logs)}")
        time.sleep(0.1)


def log_tails(logs: Path) -> str:
    """Give the last lines of every log file in the folder."""
    return "\n".join(
        f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        for log in sorted(logs.iterdir())
    )
