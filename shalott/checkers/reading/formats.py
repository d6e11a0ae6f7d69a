"""How each format becomes text that the engine's reader of entries takes: EDN or JSON.

Most files are one of the two. What is neither becomes EDN, a piece at a time: Jepsen's block format
and its older Fressian files, OpenChaos's lines, logs of Jepsen's and of Violin's, and what our own
runs left.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final

from shalott.checkers.engine import lib
from shalott.checkers.reading.edn import encode
from shalott.checkers.reading.edn_export import edn_lines
from shalott.checkers.reading.fressian import FressianError, Reader
from shalott.checkers.reading.history_files import (
    BLOCKS,
    ETCD,
    FRESSIAN,
    JEPSEN,
    JSON,
    KEY_VALUE,
    OPENCHAOS,
    SHALOTT,
    VIOLIN,
)
from shalott.checkers.reading.jepsen_file import JepsenFile
from shalott.checkers.reading.openchaos import edn_of_openchaos
from shalott.checkers.reading.text_history import read_text
from shalott.core.errors import UnreadableHistory

PIECE_BYTES: Final = 1 << 16
_LOG_LINE: Final = re.compile(
    r"(?:.*jepsen\.util - )?\s*(\d+|:nemesis)\t(:\w+)\t([^\t]+)\t([^\t]*)(?:\t(.*))?"
)
_LOG_PARTS: Final = re.compile(r"\t:(?:invoke|ok|fail|info)\b")


@dataclass(slots=True)
class LeftOut:
    """What is missing of a file that was read: ``notes`` says it; ``cut``: where its end is."""

    notes: list[str] = field(default_factory=list)
    cut: str = ""

    def line_is_cut(self, number: int) -> None:
        self.cut = f"line {number}"

    def sentences(self) -> tuple[str, ...]:
        if not self.cut:
            return tuple(self.notes)
        cut = f"the file is cut off at {self.cut}: it was read up to the last whole entry"
        return (cut, *self.notes)


Opened = Callable[[LeftOut], io.RawIOBase | io.BytesIO]  # a file's text, each time anew


def language(dialect: str) -> int:
    """What a file of a dialect is to the engine: SHL_ENTRIES_JSON or _EDN."""
    return int(lib.SHL_ENTRIES_JSON if dialect == JSON else lib.SHL_ENTRIES_EDN)


def opener(path: Path, dialect: str) -> Opened:
    """Opens a plain file of a dialect. Raises UnreadableHistory, then or while it is read."""
    if dialect in (JEPSEN, KEY_VALUE, JSON):
        return lambda _: _opened(path)
    pieces: Callable[[LeftOut], Generator[bytes, None, None]] = {
        BLOCKS: lambda _: _of_blocks(path),
        FRESSIAN: lambda _: _of_fressian(path),
        OPENCHAOS: lambda left_out: _of_openchaos(path, left_out),
        ETCD: lambda left_out: _of_log(path, left_out),
        VIOLIN: lambda _: _of_columns(path, dialect),
        SHALOTT: lambda left_out: _of_own(path, left_out),
    }[dialect]
    return lambda left_out: TextOf(pieces(left_out))


def _opened(path: Path) -> io.RawIOBase:
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise UnreadableHistory(f"cannot read {path}: {error.strerror}") from error


class TextOf(io.RawIOBase):
    """Pieces of text as one file. Closing it closes what they come from."""

    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces = pieces
        self._left = b""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        some = self._left
        while len(some) < len(buffer) and (piece := next(self._pieces, None)) is not None:
            some += piece
        taken = some[: len(buffer)]
        buffer[: len(taken)] = taken
        self._left = some[len(taken) :]
        return len(taken)

    def close(self) -> None:
        self._pieces.close()
        super().close()


def _of_blocks(path: Path) -> Generator[bytes, None, None]:
    yield from JepsenFile(path).edn()


def _of_fressian(path: Path) -> Generator[bytes, None, None]:
    with path.open("rb") as file:
        data = mmap(file.fileno(), 0, access=ACCESS_READ)  # given back when none looks at it
    try:
        yield from _encoded(Reader(memoryview(data)).items_at("history"))
    except FressianError as error:
        raise UnreadableHistory(f"{path}, {error}") from error


def _encoded(operations: Iterator[object]) -> Iterator[bytes]:
    for each in operations:
        yield f"{encode(each)}\n".encode("utf-8", "surrogatepass")


def _of_own(path: Path, left_out: LeftOut) -> Generator[bytes, None, None]:
    from shalott.checkers.reading.own_entries import edn_of_own  # Arrow

    yield from edn_of_own(path, left_out.notes)


def _of_openchaos(path: Path, left_out: LeftOut) -> Generator[bytes, None, None]:
    yield from edn_of_openchaos(str(path), _lines(path, left_out))


def _lines(path: Path, left_out: LeftOut) -> Iterator[str]:
    """A last line without its end is left out: "4" may have been "49"."""
    try:
        with path.open(encoding="utf-8", errors="backslashreplace", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if line.endswith("\n"):
                    yield line
                elif line.strip():
                    left_out.line_is_cut(number)
    except OSError as error:
        raise UnreadableHistory(f"cannot read {path}: {error.strerror}") from error


def _of_log(path: Path, left_out: LeftOut) -> Generator[bytes, None, None]:
    """Lines of process, type, f, value and error, as history.txt has them and Jepsen's log."""
    ignored = 0
    for number, line in enumerate(_lines(path, left_out), 1):
        met = _LOG_LINE.fullmatch(line.rstrip("\r\n"))
        if met is None and _LOG_PARTS.search(line):
            raise UnreadableHistory(
                f"{path}, line {number}: the line has parts of an operation, but is none"
            )
        if met is None:
            ignored += bool(line.strip())
            continue
        process, kind, f, value, error = met.groups()
        told = f", :error {encode(error)}" if error else ""
        yield f"{{:process {process}, :type {kind}, :f {f}, :value {value}{told}}}\n".encode()
    if ignored:
        are = "line is" if ignored == 1 else "lines are"
        left_out.notes.append(f"{ignored} {are} not about operations and were passed over")


def _of_columns(path: Path, dialect: str) -> Generator[bytes, None, None]:
    for line in edn_lines(read_text(path, dialect, keyed=False)):
        yield line.encode()
