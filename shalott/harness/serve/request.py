"""What a request asks for: its parameters, read with bounds, the files that its names lead to, and
the refusals that answer it.

A parameter is foreign text: it has a longest length, numbers have a range, and what does not fit is
refused in one sentence. An empty parameter, as forms send it, counts as absent.

A name is relative to the store, or to a run in it. It is refused if it is absolute, has NUL or an
empty, ``.`` or ``..`` part. It is resolved once, with its symbolic links, and must then be inside;
what is opened is the resolved path, part by part, following no link, so that a change between the
look and the opening leads nowhere else. Only regular files are read, never a pipe or a device.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qsl, urlencode

from shalott.harness.run.store import PLAN, RECORDING, RESULTS

TEXT_MAX = 500
PARAMETERS_MAX = 200
INT64_MAX = 2**63 - 1
RAW = "surrogateescape"  # how bytes that are no UTF-8 stand in a str, as in Python's file names
NAME_MAX = 1000
FILES_MAX = 2000  # listed of a run
DEPTH_MAX = 8
_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Refused(Exception):
    """A request that is not answered: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


@dataclass(frozen=True)
class Query:
    """The parameters of one request, in their order; a name may come several times."""

    pairs: tuple[tuple[str, str], ...] = ()
    by_name: dict[str, list[str]] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        """The last one of that name. Raises Refused."""
        found = self.texts(name)
        return found[-1] if found else default

    def texts(self, name: str) -> list[str]:
        """All of them, each once, as whole characters. Raises Refused."""
        found = self.by_name.get(name, [])
        for value in found:
            if len(value) > TEXT_MAX:
                raise Refused(400, f"{name} is longer than {TEXT_MAX} characters.")
        return [shown(value) for value in found]

    def file_name(self, name: str) -> str:
        """The last one of that name, with bytes that are no UTF-8, as file names may have them."""
        return self.by_name.get(name, [""])[-1]

    def number(self, name: str, default: int, *, most: int = INT64_MAX) -> int:
        """A whole number from 0 to ``most``. Raises Refused."""
        text = self.text(name)
        if not text:
            return default
        value = whole_number(text)
        if value is None or not 0 <= value <= most:
            raise Refused(400, f"{name} must be a whole number from 0 to {most}.")
        return value

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """One of the choices; the first if nothing is said. Raises Refused."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise Refused(400, f"{name} must be one of {', '.join(choices)}.")
        return value

    def flag(self, name: str) -> bool:
        return self.text(name) not in ("", "0", "false", "no")

    def query(self, *without: str, **changed: str | int | None) -> str:
        """These parameters as the query of a link, some of them left out or changed."""
        kept = [(n, v) for n, v in self.pairs if n not in without and n not in changed]
        added = [(name, str(value)) for name, value in changed.items() if value is not None]
        return urlencode(kept + added, errors=RAW)


def read_query(query: str) -> Query:
    """The parameters of a query string. Raises Refused."""
    try:
        parsed = parse_qsl(query, max_num_fields=PARAMETERS_MAX, errors=RAW)
    except ValueError as error:
        raise Refused(400, f"More than {PARAMETERS_MAX} parameters.") from error
    pairs = tuple(dict.fromkeys(parsed))
    by_name: dict[str, list[str]] = {}
    for name, value in pairs:
        by_name.setdefault(name, []).append(value)
    return Query(pairs, by_name)


def whole_number(text: str) -> int | None:
    """A whole number of 64 bits; None if the text is none. Digits are counted first: Python takes
    quadratic time for long ones, and refuses very long ones in its own way."""
    stripped = text.strip()
    digits = stripped.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        return None
    value = int(stripped)
    return value if -INT64_MAX - 1 <= value <= INT64_MAX else None


def seconds_as_ns(name: str, text: str) -> int:
    """Raises Refused."""
    try:
        seconds = float(text) if len(text) <= 30 else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e9:  # neither is NaN
        raise Refused(400, f"{name} must be a time in seconds from the run's start.")
    return round(seconds * 1e9)


def link(path: str, **parameters: object) -> str:
    """A path of this server with a query; parameters that are None or empty are left out."""
    given = [(name, str(value)) for name, value in parameters.items() if value not in (None, "")]
    return f"{path}?{urlencode(given, errors=RAW)}" if given else path


def shown(text: str) -> str:
    """The text with what is no character replaced, so that it can be written as UTF-8."""
    return text.encode("utf-8", RAW).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class RunPath:
    """A run's directory. ``name`` is relative to the store, without links; ``path`` is resolved."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A regular file of a run; ``name`` is relative to it, and may hold bytes that are no UTF-8."""

    name: str
    bytes: int
    changed_ns: int


class StoreFiles:
    """The inside of one store."""

    def __init__(self, store: Path) -> None:
        self.root = store.resolve()

    def run(self, name: str) -> RunPath:
        """The run of that name; ``latest`` and the like lead to it too. Raises Refused."""
        path = self._resolved(self.root, name)
        if path == self.root or not any((path / file).is_file() for file in (PLAN, RESULTS)):
            raise Refused(404, "There is no such run in this store.")
        inside = path.relative_to(self.root).as_posix()
        if shown(inside) != inside:
            raise Refused(404, "A run's name is made of characters; this one has other bytes.")
        return RunPath(inside, path)

    @contextmanager
    def opened(self, run: RunPath, name: str) -> Iterator[BinaryIO]:
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

    def files(self, run: RunPath) -> tuple[list[StoredFile], bool]:
        """The run's regular files, and whether there are more than are listed. Links are passed
        over, and so is what is being written (``.name.part``)."""
        found: list[StoredFile] = []
        for entry, name in _entries(run.path):
            if len(found) == FILES_MAX:
                return _in_order(found), True
            try:
                seen = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            found.append(StoredFile(name, seen.st_size, seen.st_mtime_ns))
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


def _in_order(files: list[StoredFile]) -> list[StoredFile]:
    """The run's own first, then the nodes'."""
    return sorted(files, key=lambda file: ("/" in file.name, file.name))


def is_live(run: RunPath) -> bool:
    """Whether it is still being recorded."""
    return (run.path / RECORDING).is_file() and not (run.path / RESULTS).is_file()
