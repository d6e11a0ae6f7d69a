"""Whether the built engine is that of the C files beside it: a digest of them is built into it.

It stands by itself, because the build (build_engine.py) runs it too, before there is an engine.
"""

from __future__ import annotations

import os
from pathlib import Path


def sources(directory: Path) -> list[Path]:
    """Every file that the engine is built from, but the one that cffi writes."""
    found = [*directory.glob("*.c"), *directory.glob("*.h")]
    return sorted(path for path in found if path.name != "_engine.c")


def digest(directory: Path) -> int:
    """A number that changes with any of the sources, their names included."""
    import hashlib  # loads OpenSSL, which is not needed by who only looks at times

    said = hashlib.sha256()
    for path in sources(directory):
        said.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        said.update(path.read_bytes())
    return int.from_bytes(said.digest()[:7], "little")


def is_stale(built: Path, built_from: int) -> bool:
    """Whether ``built`` was made from other sources than there are now.

    They are read only if one of them is younger: looking costs 0.1 ms, and where there are none,
    there is nothing to be older than.
    """
    built_ns = built.stat().st_mtime_ns
    with os.scandir(built.parent) as entries:
        is_younger = any(
            entry.stat().st_mtime_ns > built_ns
            for entry in entries
            if entry.name.endswith((".c", ".h")) and entry.name != "_engine.c"
        )
    return is_younger and digest(built.parent) != built_from
