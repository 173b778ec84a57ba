"""Names from content: the hash of the files that something is made from."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest(paths: Iterable[Path], *more: str) -> str:
    """Hash files and folders (names and content, without bytecode) and further strings: 12 hex digits."""
    total = hashlib.sha256("\0".join(more).encode())
    for path in paths:
        for file in sorted(_files(path)):
            total.update(f"{file.relative_to(path.parent)}\0".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:12]


def _files(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    return (file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
