"""Histories that are text, fed to the engine's readers (engine/read*.c) piece by piece.

The engine makes the columns; Python decodes each distinct word, key and form once.
"""

from __future__ import annotations

import io
import os
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from types import NoneType
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import INT32S, INT64S, UINT8S, Budget, CData, ffi, lib, new_budget
from shalott.checkers.history.column_values import Keyword, Words, exact, exact_all
from shalott.checkers.history.concurrent import FORM, INTEGER, NOTHING, ConcurrentHistory, Values
from shalott.checkers.reading.edn import EdnError, decode, json_value
from shalott.core.errors import UnreadableHistory

PIECE_BYTES: Final = 1 << 20
FEW: Final = 4096  # rows
SHORT: Final = 24  # bytes of a value that is remembered for the next file
MOST_SHORT: Final = 4096
_BOM = b"\xef\xbb\xbf"
_SLICES = ffi.typeof("shl_slices *")
_SEPARATOR = bytes([lib.SHL_SEPARATOR])

_READERS: Final = {
    "jepsen": lib.SHL_READ_EDN,
    "porcupine-kv": lib.SHL_READ_EDN,
    "shalott": lib.SHL_READ_RECORDING,
    "porcupine-etcd": lib.SHL_READ_JEPSEN_LOG,
    "violin": lib.SHL_READ_VIOLIN,
}


def read_text(
    path: Path | str,
    dialect: str,
    keyed: bool,
    piece: int = PIECE_BYTES,
    whole: bytes | None = None,
    file: io.RawIOBase | io.BytesIO | None = None,
    by_index: bool = False,
) -> ConcurrentHistory:
    """Reads a file of a dialect that is text. Raises UnreadableHistory.

    ``whole``: all of its bytes, where they have been read already. ``file``: what gives them
    instead of the file at ``path``. ``by_index``: the times of the history are the indexes of its
    entries.
    """
    if keyed and _READERS[dialect] != lib.SHL_READ_EDN:
        raise UnreadableHistory(f"{path}: only values of EDN are keyed, not those of {dialect}")
    budget = new_budget()
    how = (lib.SHL_READ_KEYED if keyed else 0) | (lib.SHL_READ_BY_INDEX if by_index else 0)
    reader = lib.shl_reader_new(_READERS[dialect], how, budget)
    if reader == ffi.NULL:
        raise MemoryError(f"no memory to read {path}")
    try:
        if file is not None:
            _feed_from(file, path, dialect, reader, budget, bytearray(piece))
        elif whole is None:
            _feed(path, dialect, reader, budget, piece)
        else:
            _feed_whole(path, dialect, reader, budget, whole)
        return _history(path, dialect, reader)
    finally:
        lib.shl_reader_free(reader)


def _feed(path: Path | str, dialect: str, reader: CData, budget: Budget, piece: int) -> None:
    try:
        with Path(path).open("rb", buffering=0) as file:
            # A small file is not worth clearing a large buffer; one more byte finds its end.
            size = os.fstat(file.fileno()).st_size  # 0 of what is no file: a pipe
            buffer = bytearray(min(piece, size + 1) if size else piece)
            _feed_from(file, path, dialect, reader, budget, buffer)
    except OSError as error:
        raise UnreadableHistory(f"cannot read {path}: {error.strerror}") from error


def _feed_from(
    file: io.RawIOBase | io.BytesIO,
    path: Path | str,
    dialect: str,
    reader: CData,
    budget: Budget,
    buffer: bytearray,
) -> None:
    filled = 0
    is_first = True
    while True:
        read = file.readinto(memoryview(buffer)[filled:]) or 0
        if is_first and buffer[:3] == _BOM:
            buffer[:3] = b"   "
        is_first = False
        filled += read
        used = lib.shl_reader_feed(reader, ffi.from_buffer(buffer), filled, read == 0)
        if used < 0:
            _raise(path, dialect, reader, budget)
        if read == 0:
            return
        left = filled - used
        if left == len(buffer):  # one entry fills it
            buffer = buffer + bytearray(left)
        elif used:
            buffer[:left] = buffer[used:filled]
        filled = left


def _feed_whole(
    path: Path | str, dialect: str, reader: CData, budget: Budget, whole: bytes
) -> None:
    content = b"   " + whole[3:] if whole.startswith(_BOM) else whole
    if lib.shl_reader_feed(reader, ffi.from_buffer(content), len(content), 1) < 0:
        _raise(path, dialect, reader, budget)


def _raise(path: Path | str, dialect: str, reader: CData, budget: Budget) -> None:
    state = lib.shl_reader_state(reader)
    if state.error == lib.SHL_READ_STOPPED:
        raise MemoryError(f"no memory to read {path}: {budget.bytes_peak} bytes were held")
    raise UnreadableHistory(f"{path}, {complaint(state, dialect)}")


def _history(path: Path | str, dialect: str, reader: CData) -> ConcurrentHistory:
    state = lib.shl_reader_state(reader)
    if state.torn and not state.entries:
        raise UnreadableHistory(f"{path}, line {state.torn}: the file ends before its first entry")
    n = state.operations
    timed = bool(state.timed) and n > 0
    columns = _copied(reader, n, timed) if n <= FEW else _taken(reader, n, timed, state.crowded)
    argument, result, place, call_ns, ret_ns = columns.wide
    f, keys, process, call, ret = columns.narrow
    argument_kind, result_kind, type_ = columns.bytes
    forms = _Forms(path, reader, is_json=dialect == "shalott")
    key = _keys(path, reader, dialect, keys, bool(state.keyed))
    return ConcurrentHistory(
        f=Words(f, _words(reader, dialect)),
        key=key,
        argument=forms.values(argument_kind, argument),
        result=forms.values(result_kind, result),
        type=type_,
        process=process,
        call=call,
        ret=ret,
        call_ns=call_ns,
        ret_ns=ret_ns,
        place=place,
        place_name="index" if state.crowded else "line",
        source=str(path),
        dialect=dialect,
        notes=_notes(dialect, state) + (_notes_on_keys(key.names) if state.keyed else ()),
        cut=_cut(state),
        error=_errors(reader, n, state.errors) if state.errors else None,
        odd=_orders(state) if state.oddities else (),
    )


Ints = npt.NDArray[np.int64]
_T = TypeVar("_T", bound=np.generic)


class _Columns(NamedTuple):
    """In the order of shl_reader_copy."""

    wide: tuple[
        Ints, Ints, Ints, Ints | None, Ints | None
    ]  # of int64; None for times that there are not
    narrow: Iterable[npt.NDArray[np.int32]]
    bytes: Iterable[npt.NDArray[np.uint8]]


def _copied(reader: CData, n: int, timed: bool) -> _Columns:
    """Few rows are copied in less time than it takes to own a column."""
    wide = np.empty((5 if timed else 3, n), dtype=np.int64)
    narrow = np.empty((5, n), dtype=np.int32)
    small = np.empty((3, n), dtype=np.uint8)
    lib.shl_reader_copy(
        reader,
        ffi.from_buffer(INT64S, wide),
        ffi.from_buffer(INT32S, narrow),
        ffi.from_buffer(UINT8S, small),
    )
    # By their places: unpacking an array ends with an IndexError that has to be made.
    return _Columns(
        (wide[0], wide[1], wide[2], wide[3] if timed else None, wide[4] if timed else None),
        (narrow[0], narrow[1], narrow[2], narrow[3], narrow[4]),
        (small[0], small[1], small[2]),
    )


def _taken(reader: CData, n: int, timed: bool, crowded: bool) -> _Columns:
    def take(which: int, kind: type[_T]) -> npt.NDArray[_T]:
        memory = lib.shl_reader_column(reader, which)
        owned = ffi.gc(memory, lib.shl_column_free)
        return np.frombuffer(ffi.buffer(owned, n * np.dtype(kind).itemsize), dtype=kind)

    return _Columns(
        wide=(
            take(lib.SHL_READ_ARGUMENT_NUMBER, np.int64),
            take(lib.SHL_READ_RESULT_NUMBER, np.int64),
            take(lib.SHL_READ_ENTRY if crowded else lib.SHL_READ_LINE, np.int32).astype(np.int64),
            take(lib.SHL_READ_CALL_NS, np.int64) if timed else None,
            take(lib.SHL_READ_RET_NS, np.int64) if timed else None,
        ),
        narrow=(
            take(lib.SHL_READ_F, np.int32),
            take(lib.SHL_READ_KEY, np.int32),
            take(lib.SHL_READ_PROCESS, np.int32),
            take(lib.SHL_READ_CALL, np.int32),
            take(lib.SHL_READ_RET, np.int32),
        ),
        bytes=(
            take(lib.SHL_READ_ARGUMENT_KIND, np.uint8),
            take(lib.SHL_READ_RESULT_KIND, np.uint8),
            take(lib.SHL_READ_TYPE, np.uint8),
        ),
    )


def _notes_on_keys(names: tuple[str, ...]) -> tuple[str, ...]:
    twins = [name for name in names if name[:1] == ":" and name[1:] in names]
    if not twins:
        return ()
    shown = ", ".join(f'"{name[1:]}" and {name}' for name in twins[:3])
    return (f"a string and a keyword are held to be two keys, as EDN has it: {shown}",)


_ODD: Final[dict[int, str]] = {
    lib.SHL_ODD_REUSED: (
        "a process went on after an operation of it had crashed ({often}): what crashed may yet"
        " take effect, at any later time"
    ),
    lib.SHL_ODD_TIME_BACK: (
        "times go back ({often}): the order of the lines was taken for the order of time"
    ),
    lib.SHL_ODD_INDEX_BACK: (
        "indexes go back ({often}): the order of the lines was taken for the order of time"
    ),
    lib.SHL_ODD_INDEX_TWICE: "an index was given that another entry has ({often})",
}
_ORDERS: Final = (
    ("time", lib.SHL_ODD_TIME_BACK),
    ("index", lib.SHL_ODD_INDEX_BACK),
)


def _orders(state: CData) -> tuple[str, ...]:
    """The orders that are others than that of the lines."""
    return tuple([word for word, which in _ORDERS if state.odd[which]])


def _errors(reader: CData, n: int, count: int) -> Words:
    rows, errors = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    lib.shl_reader_errors(reader, ffi.from_buffer(INT32S, rows), ffi.from_buffer(INT32S, errors))
    codes = np.zeros(n, dtype=np.int32)
    codes[rows] = errors + 1
    return Words(codes, ("", *map(_text, _slices(reader, lib.SHL_READ_ERRORS))))


def _cut(state: CData) -> str:
    """Where the end is missing, if the file tells that it is."""
    if state.torn:
        return f"line {state.torn}"
    return f"line {state.line}" if state.begun and not state.ended else ""


def _notes(dialect: str, state: CData) -> tuple[str, ...]:
    notes = []
    if state.torn:
        notes.append(
            f"the file is cut off at line {state.torn}: it was read up to the last whole entry"
        )
    elif dialect == "shalott" and not state.ended:
        notes.append("the recording has no end mark: what came after its last flush is missing")
    for which, sentence in _ODD.items() if state.oddities else ():
        if times := state.odd[which]:
            often = f"{times} times, first" if times > 1 else "once"
            notes.append(sentence.format(often=f"{often} in line {state.odd_line[which]}"))
    if state.ignored:
        lines = "line is" if state.ignored == 1 else "lines are"
        notes.append(f"{state.ignored} {lines} not about operations and were passed over")
    return tuple(notes)


# --- words, keys, forms ---------------------------------------------------------------------------


def _slices(reader: CData, table: int) -> list[bytes]:
    """The distinct slices of a table."""
    found = ffi.new(_SLICES)
    lib.shl_reader_slices(reader, table, found)
    if not found.count:
        return []
    whole = ffi.unpack(found.bytes, found.bytes_used)
    slices: list[bytes] = whole.split(_SEPARATOR)
    if len(slices) == found.count + 1:
        slices.pop()  # behind the last one
        return slices
    slices, begin = [], 0  # one of them holds the separator
    for end in ffi.unpack(found.ends, found.count):
        slices.append(whole[begin:end])
        begin = end + 1
    return slices


def _lines(reader: CData, table: int) -> list[int]:
    """The line where each of them stood first."""
    found = ffi.new(_SLICES)
    lib.shl_reader_slices(reader, table, found)
    return ffi.unpack(found.lines, found.count) if found.count else []


def _text(slice_: bytes) -> str:
    return slice_.decode("utf-8", "backslashreplace")


def _json_text(slice_: bytes) -> str:
    if b"\\" not in slice_:
        return _text(slice_)
    import json

    try:
        return str(json.loads(b'"' + slice_ + b'"'))
    except ValueError:
        return _text(slice_)


def _words(reader: CData, dialect: str) -> tuple[str, ...]:
    decoded = _json_text if dialect == "shalott" else _text
    return tuple([decoded(name) for name in _slices(reader, lib.SHL_READ_WORDS)])


def _keys(
    path: Path | str, reader: CData, dialect: str, codes: npt.NDArray[np.int32], keyed: bool
) -> Words:
    """Keys as strings: a string or a keyword by its text, anything else as it is written."""
    if not keyed:
        return Words(np.zeros(len(codes), dtype=np.int32), ("",))
    slices = _slices(reader, lib.SHL_READ_KEYS)
    if dialect == "shalott":
        decoded: list[Hashable] = [_json_text(each) for each in slices]
    else:
        lines = _lines(reader, lib.SHL_READ_KEYS)
        decoded = [_decoded(path, each, line) for each, line in zip(slices, lines, strict=True)]
    strings = {value for value in decoded if type(value) is str}
    named: dict[str, tuple[Hashable, int]] = {}
    code_of = np.zeros(len(slices) + 1, dtype=np.int32)  # the last is what -1 refers to: no key
    if (codes < 0).any():
        named[""] = "", 0
    for number in sorted(range(len(slices)), key=lambda number: isinstance(decoded[number], str)):
        value = decoded[number]
        name = str(value) if isinstance(value, str) else _text(slices[number])
        if isinstance(value, Keyword) and value in strings:
            name, value = f":{name}", (Keyword, value)  # EDN has "k" and :k for two
        if named.get(name, (exact(value), 0))[0] != exact(value):
            name = _text(slices[number])  # "1" and 1 are different keys: this one has its quotes
        code_of[number] = named.setdefault(name, (exact(value), len(named)))[1]
    return Words(code_of[codes], tuple(named))


def _decoded(path: Path | str, slice_: bytes, line: int, is_json: bool = False) -> Hashable:
    try:
        value = json_value(_text(slice_)) if is_json else decode(_text(slice_))
    except EdnError as error:
        raise UnreadableHistory(f"{path}, line {line}: {error}") from error
    is_exact_form = exact(value) is value and type(value) not in _OTHER_KINDS
    if is_exact_form and not is_json and len(slice_) <= SHORT and len(_SHORT) < MOST_SHORT:
        _SHORT[slice_] = value
    return value


# Small histories of one object have the same few values, and are read by the hundred: forms of few
# bytes that are exact.
_SHORT: Final[dict[bytes, Hashable]] = {}


_OTHER_KINDS: Final = {NoneType, int}  # values of these types may be no forms


class _Forms:
    """The values that are not plain integers, decoded once, equal ones under one number."""

    def __init__(self, path: Path | str, reader: CData, is_json: bool) -> None:
        slices = _slices(reader, lib.SHL_READ_FORMS)
        found: Sequence[Hashable] = [None if is_json else _SHORT.get(each) for each in slices]
        self._are_exact = None not in found
        if self._are_exact:
            are_forms = len(set(found)) == len(found)
        else:
            lines = _lines(reader, lib.SHL_READ_FORMS)
            found = [
                _decoded(path, each, line, is_json) if value is None else value
                for value, each, line in zip(found, slices, lines, strict=True)
            ]
            are_distinct = len(set(exact_all(found))) == len(found)
            are_forms = are_distinct and _OTHER_KINDS.isdisjoint(map(type, found))
        self.forms: tuple[Hashable, ...] = tuple(found)
        self._as_they_are = are_forms
        if not are_forms:
            self._kinds, self._numbers, self.forms = _numbered(found)

    def values(self, kind: npt.NDArray[np.uint8], number: npt.NDArray[np.int64]) -> Values:
        if not self._as_they_are:
            rows = np.flatnonzero(kind == FORM)
            which = number[rows]
            kind[rows] = self._kinds[which]
            number[rows] = self._numbers[which]
        return Values(kind, number, self.forms, self._are_exact)


def _numbered(
    decoded: Iterable[Hashable],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], tuple[Hashable, ...]]:
    kinds, numbers = [], []
    forms: dict[Hashable, tuple[int, Hashable]] = {}
    for value in decoded:
        if value is None:
            kinds.append(NOTHING)
            numbers.append(0)
        elif type(value) is int and -(2**63) <= value < 2**63:
            kinds.append(INTEGER)
            numbers.append(value)
        else:
            kinds.append(FORM)
            numbers.append(forms.setdefault(exact(value), (len(forms), value))[0])
    return (
        np.array(kinds, dtype=np.uint8),
        np.array(numbers, dtype=np.int64),
        tuple(value for _, value in forms.values()),
    )


# What the engine's readers found wrong with a file, as one sentence that begins with the line.
# {word}: what was met; {id}: the process or the operation; {other}: the invocation's line.

_SENTENCES: Final[dict[int, str]] = {
    lib.SHL_READ_UNEXPECTED: "this can't stand here",
    lib.SHL_READ_MISMATCHED: "a bracket is closed by one of another kind",
    lib.SHL_READ_TOO_DEEP: "more than 128 brackets within each other",
    lib.SHL_READ_ODD_MAP: "a map has a key without a value",
    lib.SHL_READ_NO_MAP: "no operation stands here",
    lib.SHL_READ_CUT_LINE: "the line ends within an operation",
    lib.SHL_READ_UNCLOSED: (
        "the operation that begins in line {other} is not closed: a bracket or a quote is missing"
        " or there is one too many"
    ),
    lib.SHL_READ_COMMENTED: (
        "an operation stands in a comment or a discarded form: take the line out of the file if it"
        " is not meant"
    ),
    lib.SHL_READ_ODD_LINE: (
        "the line has parts of an operation, but is none, or is two: process, type, f and value of"
        " one are wanted"
    ),
    lib.SHL_READ_NEMESIS_F: ("process -1 is the nemesis, but does {word}, which clients do, too"),
    lib.SHL_READ_NO_PROCESS: "an operation without a process",
    lib.SHL_READ_NO_TYPE: "an operation without a type",
    lib.SHL_READ_NO_F: "an operation without an f",
    lib.SHL_READ_BAD_PROCESS: "a process is a number or :nemesis, not {word}",
    lib.SHL_READ_BAD_TYPE: "a type is {types}, not {word}",
    lib.SHL_READ_BAD_F: "an f is a word, not {word}",
    lib.SHL_READ_BAD_TIME: "a time is a number of nanoseconds, not {word}",
    lib.SHL_READ_NOT_KEYED: (
        "the history is keyed, but a value is no [key value]: {word}; without --keyed it is one"
        " object"
    ),
    lib.SHL_READ_NO_INDEX: "an operation without an index",
    lib.SHL_READ_BAD_INDEX: "an index is a number from 0, not {word}",
    lib.SHL_READ_NO_VALUE: "this is no value: {word}",
    lib.SHL_READ_FIELD_TWICE: "an operation says {word} twice",
    lib.SHL_READ_SOME_PROCESS: "this operation has a process, but the first one has none",
    lib.SHL_READ_SOME_F: "this operation has an f, but the first one has none",
    lib.SHL_READ_TOO_MANY: "more operations or lines than can be counted (2^30)",
}
_BY_PROCESS: Final[dict[int, str]] = {
    lib.SHL_READ_INVOKED_TWICE: (
        "process {id} invokes an operation while the one that it invoked in line {other} is open"
    ),
    lib.SHL_READ_NOT_INVOKED: "process {id} completes an operation, but has none open",
    lib.SHL_READ_OTHER_F: (
        "process {id} completes {word}, but what it invoked in line {other} is something else"
    ),
    lib.SHL_READ_OTHER_KEY: (
        "process {id} completes an operation on key {word}, but what it invoked in line {other} is"
        " on another"
    ),
}
_BY_NUMBER: Final[dict[int, str]] = {
    lib.SHL_READ_INVOKED_TWICE: "operation {id} is invoked again, after line {other}",
    lib.SHL_READ_NOT_INVOKED: "operation {id} completes, but is not open",
    lib.SHL_READ_OTHER_F: "operation {id} completes as {word}; line {other} says something else",
    lib.SHL_READ_OTHER_KEY: "operation {id} completes on key {word}; line {other} is on another",
}
_TYPES: Final = {"shalott": "invoke, ok, fail or info", "violin": "call or return"}


def complaint(state: CData, dialect: str) -> str:
    """``line 12, column 3: what is wrong``."""
    numbered = _BY_NUMBER if dialect in ("shalott", "violin") else _BY_PROCESS
    sentence = numbered.get(state.error) or _SENTENCES[state.error]
    if dialect == "violin" and state.error == lib.SHL_READ_BAD_PROCESS:
        sentence = "an operation is a number in brackets, not {word}"
    met = ffi.string(state.error_word).decode("utf-8", errors="backslashreplace")
    word = "".join(each if each.isprintable() else " " for each in met)
    if state.error == lib.SHL_READ_BAD_TIME and not word:
        sentence = "an operation without a time"
    said = sentence.format(
        word=word,
        id=state.error_id,
        other=state.error_other,
        types=_TYPES.get(dialect, ":invoke, :ok, :fail or :info"),
    )
    return f"line {state.error_line}, column {state.error_column}: {said}"
