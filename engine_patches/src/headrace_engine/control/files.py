"""Creating a file whole under its name, and reading one that somebody else may be replacing.

Readers go through `read`, not `mmap`: a mapping of a file that shrinks kills the process with SIGBUS, a read
only comes back short. They refuse anything but a regular file, since the other side of the folder belongs to
another container: a FIFO or a symbolic link there must not stall or mislead us.
"""

from __future__ import annotations

import mmap
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

READABLE_BY_ALL = 0o644  # engine and sidecar run as different users


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` at `path` by rename: readers see the old content or the new. Raises OSError."""
    descriptor, temporary = _temporary_beside(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def map_new(path: Path, size: int, head: bytes) -> mmap.mmap:
    """Map a new file of `size` zero bytes that begins with `head`, writable. Raises OSError.

    The space is allocated at once: on a full memory volume this fails here, not by SIGBUS in a later step.
    """
    descriptor, temporary = _temporary_beside(path)
    try:
        os.posix_fallocate(descriptor, 0, size)
        mapping = mmap.mmap(descriptor, size)
        mapping[: len(head)] = head
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    finally:
        os.close(descriptor)
    return mapping


def open_regular(path: Path) -> int | None:
    """Open `path` for reading; returns a descriptor, or None if there is no regular, readable file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def read_start(path: Path, limit: int) -> bytes:
    """Read at most the first `limit` bytes of `path`; empty if there is no regular, readable file."""
    descriptor = open_regular(path)
    if descriptor is None:
        return b""
    try:
        return os.pread(descriptor, limit, 0)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def file_identity(path: Path) -> tuple[int, ...]:
    """Return what changes whenever the file at `path` is replaced or rewritten; empty if there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


def _temporary_beside(path: Path) -> tuple[int, str]:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.fchmod(descriptor, READABLE_BY_ALL)
    return descriptor, name
