"""A run's short id, for tables and for typing: ``NAME/TIME`` breaks on narrow terminals.

It is computed from the name, so that nothing stores it and every store of every age has it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from pathlib import PurePath

from shalott.core.errors import UsageError

_ID = re.compile(r"[0-9a-f]{6}")


def run_id(run: str) -> str:
    """``run``: its directory below the store, or a whole path: NAME/TIME count."""
    name = "/".join(PurePath(run).parts[-2:])
    return f"{zlib.crc32(name.encode(errors='surrogateescape')) & 0xFFFFFF:06x}"


def is_run_id(word: str) -> bool:
    """Whether it may be one."""
    return _ID.fullmatch(word) is not None


def run_of_id(word: str, runs: Iterable[str]) -> str | None:
    """The one of ``runs`` that ``word`` is the id of; None if it is of none.

    Raises UsageError: it is of several, as of one in a thousand stores of two hundred runs.
    """
    if not is_run_id(word):
        return None
    found = [run for run in runs if run_id(run) == word]
    if len(found) > 1:
        raise UsageError(f"{word} is the id of {' and of '.join(found)}: give the directory")
    return found[0] if found else None
