"""Where a request's names lead: to regular files of runs inside the store, or nowhere.

A name is relative to the store, or to a run in it. It is refused if it is absolute, has NUL or an
empty, ``.`` or ``..`` part. It is resolved once, with its symbolic links, and must then be inside;
what is opened is the resolved path, part by part, following no link: what somebody changes between
the look and the opening leads nowhere else. Only regular files are read, never a pipe or a device.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shalott.harness.fleet.serve.asked import Refused, shown
from shalott.harness.run.store import PLAN, RECORDING, RESULTS

NAME_MAX = 1000
FILES_MAX = 2000  # listed of a run
DEPTH_MAX = 8
_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run's directory. ``name`` is relative to the store, without links; ``path`` is resolved."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class FileSeen:
    """A regular file of a run; ``name`` is relative to it, and may hold bytes that are no UTF-8."""

    name: str
    bytes: int
    changed_ns: int


class Places:
    """The inside of one store."""

    def __init__(self, store: Path) -> None:
        self.root = store.resolve()

    def run(self, name: str) -> RunPlace:
        """The run of that name; ``latest`` and the like lead to it too. Raises Refused."""
        path = self._resolved(self.root, name)
        if path == self.root or not any((path / file).is_file() for file in (PLAN, RESULTS)):
            raise Refused(404, "There is no such run in this store.")
        told = path.relative_to(self.root).as_posix()
        if shown(told) != told:
            raise Refused(404, "A run's name is made of characters; this one has other bytes.")
        return RunPlace(told, path)

    @contextmanager
    def opened(self, run: RunPlace, name: str) -> Iterator[BinaryIO]:
        """A file of the run, to be read. Raises Refused."""
        path = self._resolved(run.path, name)
        if not path.is_relative_to(run.path):
            raise Refused(404, "That file is not the run's.")
        with self.opened_below(path.relative_to(self.root)) as file:
            yield file

    @contextmanager
    def opened_below(self, relative: Path) -> Iterator[BinaryIO]:
        """A regular file by its path from the store's root, which has no links. Raises Refused."""
        try:
            descriptor = self._open(relative.parts)
        except OSError as error:
            raise Refused(404, "There is no such file, or it can't be read.") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Refused(404, "That is no regular file.")
        with os.fdopen(descriptor, "rb") as file:
            yield file

    def _open(self, parts: tuple[str, ...]) -> int:
        at = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for number, part in enumerate(parts, start=1):
            flags = _NO_FOLLOW | (os.O_DIRECTORY if number < len(parts) else 0)
            try:
                inner = os.open(part, flags, dir_fd=at)
            finally:
                os.close(at)
            at = inner
        return at

    def files(self, run: RunPlace) -> tuple[list[FileSeen], bool]:
        """The run's regular files, and whether there are more than are listed. Links are passed
        over, and so is what is being written (``.name.part``)."""
        found: list[FileSeen] = []
        for entry, name in _entries(run.path):
            if len(found) == FILES_MAX:
                return _in_order(found), True
            try:
                seen = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            found.append(FileSeen(name, seen.st_size, seen.st_mtime_ns))
        return _in_order(found), False

    def _resolved(self, base: Path, name: str) -> Path:
        """The place, which is inside the store. Raises Refused."""
        parts = name.split("/")
        if (
            not name
            or len(name) > NAME_MAX
            or "\0" in name
            or any(part in ("", ".", "..") for part in parts)
        ):
            raise Refused(404, "That is no name of anything in this store.")
        try:
            path = base.joinpath(*parts).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links
            raise Refused(404, "There is nothing of that name in this store.") from error
        if not path.is_relative_to(self.root):
            raise Refused(404, "That name leads out of the store.")
        return path


def _entries(top: Path) -> Iterator[tuple[os.DirEntry[str], str]]:
    waiting = [(top, "", 0)]
    while waiting:
        directory, prefix, depth = waiting.pop()
        try:
            with os.scandir(directory) as listed:
                entries = sorted(listed, key=lambda each: each.name)
        except OSError:
            continue
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if depth < DEPTH_MAX:
                    waiting.append((Path(entry.path), f"{name}/", depth + 1))
            elif entry.is_file(follow_symlinks=False) and not _is_unfinished(entry.name):
                yield entry, name


def _is_unfinished(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")


def _in_order(files: list[FileSeen]) -> list[FileSeen]:
    """The run's own first, then the nodes'."""
    return sorted(files, key=lambda file: ("/" in file.name, file.name))


def is_live(run: RunPlace) -> bool:
    """Whether it is still being recorded."""
    return (run.path / RECORDING).is_file() and not (run.path / RESULTS).is_file()
