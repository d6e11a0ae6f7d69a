"""From a file to a ConcurrentHistory: which dialect it is, by its content, and who reads it.

A dialect is told by the first entry, never by the file's name. Reading is strict: what is malformed
is an UnreadableHistory that names the line, because a checker that guesses decides about another
history than the one that was recorded. The one exception is an end that was cut off, which is how
a killed recorder leaves a file: everything before it is read, and a note says so.
"""

from __future__ import annotations

import gzip
import os
import re
import select
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.reading.edn import KEYED_COMMENT
from shalott.core.errors import UnreadableHistory

SHALOTT, JEPSEN, ETCD, KEY_VALUE, VIOLIN = (
    "shalott",
    "jepsen",
    "porcupine-etcd",
    "porcupine-kv",
    "violin",
)
JSON, BLOCKS, FRESSIAN, OPENCHAOS = "json", "jepsen-file", "jepsen-fressian", "openchaos"
FOREIGN: Final = (JSON, BLOCKS, FRESSIAN, OPENCHAOS)  # what becomes EDN before it is read
DIALECTS: Final = (SHALOTT, JEPSEN, ETCD, KEY_VALUE, VIOLIN, *FOREIGN)

# What a directory may hold, the first that is there: of a run of ours, of a store of Jepsen's or
# Maelstrom's, of what others wrote.
HISTORIES: Final = ("history.parquet", "history.jsonl", "history.edn", "test.jepsen",
                    "test.fressian", "history.json", "history.txt")  # fmt: skip
_OURS: Final = HISTORIES[:2]
_COMPANIONS: Final = ("results.edn", "test.edn", "results.json")
_MAY_BE_HISTORIES: Final = (".edn", ".json", ".jsonl", ".gz", ".parquet", ".jepsen", ".fressian")
_OPENCHAOS_FILES: Final = "*chaos-history-file"
_PARQUET_MAGIC = b"PAR1"
_GZIP_MAGIC = b"\x1f\x8b"
_SAMPLE_BYTES = 1 << 16

_KEYED = KEYED_COMMENT.encode()
_COMMENTS = re.compile(rb"(?:[\s,]+|;[^\n]*(?:\n|$))*")
_VIOLIN = re.compile(rb"\s*(?:#[^\n]*\n\s*)*\[\d+\]\s+(?:call|return)\b")
_VIOLIN_HEADING = re.compile(rb"\s*# @object\b")
_LOG_ENTRY = re.compile(rb"^(?:.*jepsen\.util - )?\s*(?:\d+|:nemesis)\s+:[a-z]+\s+:", re.MULTILINE)
_RECORD = re.compile(rb'\{\s*(?:"|\}|$)')
_BLOCKS_MAGIC: Final = b"JEPSEN"
_FRESSIAN_MAGIC: Final = re.compile(rb"\xc0[\xe4-\xee]")  # a map, given as a list
_OPENCHAOS: Final = re.compile(rb"\d+\t\w+\t(?:REQUEST|RESPONSE)\t|fault\t[^\t\n]+\t\w+\t\d")
_JSON_ARRAY: Final = re.compile(rb'\[\s*\{\s*"')
_JSON_ENTRY: Final = re.compile(rb'"(?:process|f)"\s*:')
_OWN_RECORD: Final = re.compile(rb'"at_ns"|"type"\s*:\s*"(?:begin|end|check)"')
_FIRST_RECORD: Final = 4096  # bytes: its names are among them
_EDN = re.compile(rb"[\[({]|#[_a-zA-Z]")


def read_history(
    path: Path | str, *, dialect: str = "auto", keyed: bool = False, by_index: bool = False
) -> ConcurrentHistory:
    """The concurrent history that a file holds.

    ``path``: a history.parquet, our own recording (history.jsonl), Jepsen's history.edn, its
    test.jepsen or test.fressian, entries as JSON, a log of Jepsen's or a history of key-value
    operations as Porcupine keeps them, OpenChaos's history file, or a log of Violin's; a directory
    that holds one of them (a run of the store, a test of Jepsen's); any of them compressed by gzip,
    from a pipe, or "-": from standard input. ``dialect``: one of ``DIALECTS``, or
    "auto": by the content. ``keyed``: each value is ``[key value]`` (jepsen.independent); each key
    is then an object of its own. ``by_index``: the times of an EDN history are its indexes.

    Call and return are ranks in the order of the log; a Parquet history, which has clock times
    instead, puts invocations before completions where two are equal. What never completed and what
    completed as info crashed: it may take effect at any later time, or never. A dequeue that failed
    because the queue was empty is an observation: ok, with a result of None.

    The history's ``notes`` say what was left out; its ``dialect`` says how it was read. Raises
    UnreadableHistory: there is no such file, no such dialect, or the file is malformed: where.
    """
    file = os.fspath(path)
    mode, size = _mode_and_size(file)
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFDIR:
        file = os.fspath(file_of(Path(file)))
        mode, size = _mode_and_size(file)
        kind = stat.S_IFMT(mode)
    if file == "-" or kind in (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR):
        return _read_unpacked(file, dialect, keyed, by_index)
    sample = _sample(file, size if kind == stat.S_IFREG else 0)
    if sample.startswith(_GZIP_MAGIC):
        return _read_unpacked(file, dialect, keyed, by_index)
    if dialect not in ("auto", *DIALECTS):
        raise UnreadableHistory(f"no dialect {dialect!r}: there are {', '.join(DIALECTS)}")
    if sample.startswith(_PARQUET_MAGIC) and dialect in ("auto", SHALOTT):
        from shalott.checkers.reading.parquet_history import read_parquet

        return read_parquet(Path(file))
    chosen = _dialect_of(file, sample) if dialect == "auto" else dialect
    if chosen in FOREIGN:
        from shalott.checkers.reading.foreign_history import read_foreign

        return read_foreign(Path(file), chosen, keyed)
    from shalott.checkers.reading.text_history import read_text

    keyed = keyed or (chosen in (JEPSEN, KEY_VALUE) and sample.startswith(_KEYED))
    whole = sample if len(sample) < _SAMPLE_BYTES else None
    return read_text(file, chosen, keyed, whole=whole, by_index=by_index)


def file_of(path: Path) -> Path:
    """The history of a run, or of another's store; a file is itself. A directory with other
    histories beside it is none of these. Raises UnreadableHistory."""
    if not path.is_dir():
        return path
    for name in HISTORIES:
        if (path / name).exists():
            if name in _OURS or _is_store(path):
                return path / name
            raise UnreadableHistory(f"{path} is not a run: other histories are beside {name}")
    found = sorted(path.glob(_OPENCHAOS_FILES))
    if len(found) == 1 and _is_store(path):
        return found[0]
    raise UnreadableHistory(f"{path} is not a run: it holds none of {', '.join(HISTORIES)}")


def _is_store(path: Path) -> bool:
    """Whether no file of a directory may be another history than that of the store's test."""
    return not any(
        entry.suffix in _MAY_BE_HISTORIES and entry.name not in (*HISTORIES, *_COMPANIONS)
        for entry in path.iterdir()
        if entry.is_file()
    )


def dialect_of_file(path: Path) -> str:
    """Of a plain file, by its beginning. Raises UnreadableHistory."""
    sample = _sample(str(path), 0)
    return SHALOTT if sample.startswith(_PARQUET_MAGIC) else _dialect_of(str(path), sample)


def _mode_and_size(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 -- a Path takes as long as reading a small file
    except (OSError, ValueError):
        return 0, 0  # opening it says why
    return found.st_mode, found.st_size


def _read_unpacked(file: str, dialect: str, keyed: bool, by_index: bool) -> ConcurrentHistory:
    with unpacked(Path(file)) as plain:
        history = read_history(plain, dialect=dialect, keyed=keyed, by_index=by_index)
    return replace(history, source=shown_name(file))


def _sample(path: str, size: int) -> bytes:
    """The file's beginning; ``size``: its length, 0 if that is not known."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            some = os.read(descriptor, _SAMPLE_BYTES)
            while len(some) < _SAMPLE_BYTES and len(some) != size:
                more = os.read(descriptor, _SAMPLE_BYTES - len(some))
                if not more:
                    break
                some += more
            return some
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnreadableHistory(f"cannot read {path}: {error.strerror}") from error


def _dialect_of(path: str, sample: bytes) -> str:
    if sample.startswith(_BLOCKS_MAGIC):
        return BLOCKS
    if _FRESSIAN_MAGIC.match(sample):
        return FRESSIAN
    text = sample.removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        raise UnreadableHistory(f"{path} is empty")
    if _VIOLIN.match(text) or _VIOLIN_HEADING.match(text):
        return VIOLIN
    body = text[_COMMENTS.match(text).end() :]  # type: ignore[union-attr]
    if _OPENCHAOS.match(text):
        return OPENCHAOS
    if _JSON_ARRAY.match(body):
        return JSON
    if _RECORD.match(body):
        first = body[:_FIRST_RECORD]
        is_json = _JSON_ENTRY.search(first) and not _OWN_RECORD.search(first)
        return JSON if is_json else SHALOTT
    if _LOG_ENTRY.search(text) and not body.startswith((b"{", b"[", b"(")):
        return ETCD
    if _EDN.match(body):
        return KEY_VALUE if re.search(rb"[\s,{]:key[\s\"]", _first_line(body)) else JEPSEN
    raise UnreadableHistory(
        f"{path} is no history that is known: it begins neither like Parquet (PAR1), JSON"
        ' ({"index":0,...), EDN ({:process 0,...), a Jepsen log (INFO  jepsen.util - 0 :invoke'
        " ...) nor a Violin log ([1] call ...)"
    )


def told_dialect(path: Path, sample: bytes) -> str:
    """Of a plain text by its beginning; "" of what is no text of ours. Raises UnreadableHistory."""
    return "" if sample.startswith(_PARQUET_MAGIC) else _dialect_of(str(path), sample)


def _first_line(body: bytes) -> bytes:
    return body.partition(b"\n")[0]


# What is no plain file as one: gzip, pipes and standard input are written out beside it.
#
# Readers look at a file's beginning, and Parquet's at its end, before they read it; a pipe can be
# read once only. What was written out is removed afterwards, and errors name what was asked for.

STANDARD_INPUT: Final = "-"
GZIP_MAGIC: Final = b"\x1f\x8b"
_PIECE_BYTES: Final = 1 << 16
_LOOK_UP_S: Final = 0.1  # a signal between two system calls is noticed after so long at most
_STREAMS: Final = (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR)


def is_stream(file: str, mode: int) -> bool:
    """Whether it is standard input, or can be read only once."""
    return file == STANDARD_INPUT or stat.S_IFMT(mode) in _STREAMS


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A plain file with the content of ``path``, which may be ``-``, a pipe, or compressed.

    It is ``path`` itself where nothing has to be done. Raises UnreadableHistory: the file can't be
    read, or is damaged, or what is raised within says so of the file that stands in for it.
    """
    with tempfile.TemporaryDirectory(prefix="shalott-") as directory:
        plain, name = path, os.fspath(path)
        try:
            if is_stream(name, path.stat().st_mode if name != STANDARD_INPUT else 0):
                plain = Path(directory) / "stream"
                _drain(name, plain)
            with plain.open("rb") as begun:
                is_packed = begun.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            if is_packed:
                unzipped = Path(directory) / path.name.removesuffix(".gz")
                with gzip.open(plain) as packed, unzipped.open("wb") as copy:
                    shutil.copyfileobj(packed, copy, _PIECE_BYTES)
                plain = unzipped
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableHistory(f"{path}: the gzip file is damaged: {error}") from error
        except OSError as error:
            raise UnreadableHistory(f"cannot read {path}: {error.strerror}") from error
        try:
            yield plain
        except UnreadableHistory as error:
            if plain is path:
                raise
            raise UnreadableHistory(str(error).replace(str(plain), shown_name(name))) from error


def shown_name(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _drain(name: str, to: Path) -> None:
    if name == STANDARD_INPUT:
        with os.fdopen(os.dup(0), "rb", buffering=0) as stream:
            _copy(stream, to)
        return
    with Path(name).open("rb", buffering=0) as stream:
        _copy(stream, to)


def _copy(stream: BinaryIO, to: Path) -> None:
    with to.open("wb") as copy:
        while True:
            # A blocking read that has just missed a Ctrl-C would wait for the writer.
            if select.select([stream], [], [], _LOOK_UP_S)[0]:
                some = os.read(stream.fileno(), _PIECE_BYTES)
                if not some:
                    return
                copy.write(some)
