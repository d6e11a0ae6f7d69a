"""How many files a running process may open, changed from outside (prlimit(2)).

The limit bounds the numbers of descriptors, not how many there are; so what a process has left is
how many numbers below its limit are free.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Iterable
from pathlib import Path

PRLIMIT = "/usr/bin/prlimit"  # util-linux: an essential package of Debian and Ubuntu


class FileLimits:
    """The limits of some processes, and what they were before. ``most``: the highest of them, 0 if
    there is none."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int]] = {}  # by process
        self._set: dict[int, int] = {}
        self._left = 0

    @property
    def most(self) -> int:
        return max(self._set.values(), default=0)

    def leave(self, processes: Iterable[int], left: int, least: int = 0) -> None:
        """So many more each, and no fewer than ``least`` in all. Raises OSError (no right);
        processes that have ended don't matter."""
        self._left = left
        for pid in processes:
            try:
                soft, hard = read_limit(pid)
                self._before.setdefault(pid, (soft, hard))
                self._set[pid] = min(hard, max(least, _limit_for(open_files(pid), left)))
                set_limit(pid, self._set[pid], hard)
            except (ProcessLookupError, FileNotFoundError):
                continue

    def left(self) -> int:
        """What ``leave`` set, as far as the kernel still says so; 0: nothing is set."""
        seen = []
        for pid, limit in self._set.items():
            try:
                soft, _ = read_limit(pid)
            except (ProcessLookupError, FileNotFoundError):
                continue
            seen.append(self._left + soft - limit)
        return min(seen, default=0)

    def restore(self, processes: Iterable[int]) -> None:
        """As before; those of ``processes`` that were begun meanwhile get what others have."""
        usual = max(self._before.values(), default=None)
        for pid in {*processes, *self._before}:
            before = self._before.get(pid, usual)
            if before is None:
                continue
            try:
                set_limit(pid, *before)
            except (ProcessLookupError, FileNotFoundError):
                continue
        self._before.clear()
        self._set.clear()
        self._left = 0


def read_limit(pid: int) -> tuple[int, int]:
    """Soft and hard, as anybody may read them. Raises FileNotFoundError or ProcessLookupError: it
    has ended."""
    text = Path(f"/proc/{pid}/limits").read_text()
    found = re.search(r"^Max open files +(\S+) +(\S+)", text, re.MULTILINE)
    if found is None:
        raise ProcessLookupError(f"{pid} has ended")  # and is not reaped: it has no limits
    return _number(found[1]), _number(found[2])


def set_limit(pid: int, soft: int, hard: int) -> None:
    """Raises OSError (no right), or ProcessLookupError or FileNotFoundError: it has ended.

    A root without CAP_SYS_RESOURCE, as in many containers, may do it to processes of its own user
    only. Then a process of that user does it.
    """
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    except PermissionError:
        owner = Path(f"/proc/{pid}").stat()
        if os.geteuid() != 0 or owner.st_uid == 0 or not Path(PRLIMIT).exists():
            raise
        values = ":".join("unlimited" if each < 0 else str(each) for each in (soft, hard))
        done = subprocess.run(
            [PRLIMIT, f"--pid={pid}", f"--nofile={values}"],
            user=owner.st_uid,
            group=owner.st_gid,
            extra_groups=(),
            cwd="/",
            check=False,
            capture_output=True,
        )
        if done.returncode != 0 and Path(f"/proc/{pid}").exists():
            raise


def _number(text: str) -> int:
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)


def open_files(pid: int) -> set[int]:
    """The numbers of its descriptors. Raises FileNotFoundError: it has ended."""
    return {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}


def _limit_for(taken: set[int], left: int) -> int:
    """The limit below which exactly so many numbers are free."""
    limit = free = 0
    while free < left:
        free += limit not in taken
        limit += 1
    # Numbers above it stay open: only new ones are refused.
    return limit
