"""Which kernels judged a run: a digest of all code that its results come from.

What was judged by other kernels is judged again. No number has to be counted up by hand, and a
change that changes nothing costs one report of more time.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).absolute().parents[2]
ROOMS = ("checkers", "core", "spark_analysis/columns", "spark_analysis/kernels")


@cache
def kernels_version() -> str:
    """Sixteen hexadecimal digits."""
    digest = hashlib.sha256()
    for room in (_PACKAGE / name for name in ROOMS):
        files = (*room.rglob("*.py"), *room.rglob("*.so"))
        for path in sorted(files, key=lambda path: path.relative_to(room).as_posix()):
            digest.update(path.relative_to(room).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
