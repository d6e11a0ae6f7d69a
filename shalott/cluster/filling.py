"""Taking all the room that a file system has, with one file, and giving it back.

Used by the harness for containers and by the agent on hosts (Python 3.9, no libraries).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILLER = ".shalott-takes-all-room"
CHUNK = 64 << 10


def fill(directory: Path) -> None:
    """Raises OSError: no file can be made there. May be repeated: then it takes what has become
    free."""
    with (directory / FILLER).open("ab", buffering=0) as file:
        free = os.fstatvfs(file.fileno())
        with contextlib.suppress(OSError):
            begin = os.fstat(file.fileno()).st_size
            os.posix_fallocate(file.fileno(), begin, max(1, free.f_bavail * free.f_frsize))
        for size in (CHUNK, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def empty(directory: Path) -> None:
    (directory / FILLER).unlink(missing_ok=True)


def is_full(directory: Path) -> bool:
    return os.statvfs(directory).f_bavail == 0
