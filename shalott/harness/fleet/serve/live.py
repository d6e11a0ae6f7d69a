"""Runs that are under way: found in the store, and followed while their recording grows.

A run is in the table when it has ended; until then its directory holds ``history.jsonl``. A store's
directories are listed again when they have changed, and of ten thousand runs only those are looked
into that the table does not name.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from shalott.harness.run.store import RECORDING, RESULTS

SILENT_NS = 10_000_000_000  # a recording that did not grow for so long: nobody seems to write it
_FOUND_MAX = 200


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """``growing``: its recording grew lately; else its harness may have been killed."""

    run: str
    recorded_bytes: int
    quiet_ms: int
    growing: bool


class Found(NamedTuple):
    """``live``: runs under way, the newest first. ``unlisted``: runs that have ended."""

    live: tuple[LiveRun, ...]
    unlisted: int

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.unlisted:
            return ()
        told = "1 run is" if self.unlisted == 1 else f"{self.unlisted:,} runs are"
        return (f"{told} in the store and not in its table: `shalott runs` takes them in.",)


class LiveRuns:
    """Looks for them. Used by several threads at once."""

    def __init__(self, root: Path, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._root = root
        self._wall_ns = wall_ns
        self._lock = threading.Lock()
        self._listed: dict[str, tuple[int, tuple[str, ...]]] = {}

    def find(self, known: Collection[str]) -> Found:
        """What of the store the table does not name (``known``)."""
        found, unlisted = [], 0
        with self._lock:
            for name in self._run_names():
                if name in known:
                    continue
                live = look_at(self._root / name, name, self._wall_ns())
                if live is not None:
                    found.append(live)
                elif (self._root / name / RESULTS).is_file():
                    unlisted += 1
        found.sort(key=lambda each: (each.growing, each.run.rpartition("/")[2]), reverse=True)
        return Found(tuple(found[:_FOUND_MAX]), unlisted)

    def _run_names(self) -> list[str]:
        """NAME/STAMP of each directory two levels down."""
        names = []
        for name in self._inside(""):
            if not name.startswith(("_", ".")) and name != "search":
                names += [f"{name}/{stamp}" for stamp in self._inside(name)]
        return names

    def _inside(self, name: str) -> tuple[str, ...]:
        """The directories in one, as they were listed when it had changed last."""
        path = self._root / name
        try:
            changed_ns = path.stat().st_mtime_ns
            kept = self._listed.get(name)
            # What changed just now may change again within the clock's grain.
            if kept and kept[0] == changed_ns and self._wall_ns() - changed_ns > SILENT_NS:
                return kept[1]
            with os.scandir(path) as entries:
                found = tuple(each.name for each in entries if each.is_dir(follow_symlinks=False))
        except OSError:
            return ()
        self._listed[name] = (changed_ns, found)
        return found


def look_at(path: Path, name: str, wall_ns: int) -> LiveRun | None:
    """The run in that directory, if it is still being recorded."""
    try:
        seen = (path / RECORDING).lstat()
        if (path / RESULTS).exists():
            return None
    except OSError:
        return None
    quiet_ns = max(0, wall_ns - seen.st_mtime_ns)
    return LiveRun(
        run=name,
        recorded_bytes=seen.st_size,
        quiet_ms=quiet_ns // 1_000_000,
        growing=quiet_ns < SILENT_NS,
    )
