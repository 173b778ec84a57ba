"""The engine's copy of the policy document: the sidecar replaces it, the engine looks for a new one.

A look costs one `stat` (about 2 us); only a file that changed is opened.
"""

from __future__ import annotations

from pathlib import Path

from headrace_engine.contracts import ContractError, PolicyDocument, dumps, loads
from headrace_engine.control.files import file_identity, write_whole


class PolicyFile:
    """Watches the policy document at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()

    def poll(self) -> PolicyDocument | None:
        """Read the document, if it is new since the last call; None while unchanged or absent.

        Raises ContractError, once per content, when the new content is not a policy document.
        """
        found = file_identity(self._path)
        if found in ((), self._seen):
            return None
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ContractError(f"{self._path.name}: cannot be read: {error.strerror}") from error
        self._seen = found
        return loads(PolicyDocument, data)


def write_policy(path: Path, document: PolicyDocument) -> None:
    """Put `document` where the engine looks. Raises OSError."""
    write_whole(path, dumps(document).encode())
