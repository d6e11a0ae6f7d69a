"""Writing a file that is there whole or not at all. Of the standard library alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from shalott.core.errors import StoreError


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside its place, make durable, rename. Raises StoreError."""
    beside = path.with_name(f".{path.name}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
