"""Our own stored histories (core/history.py): Parquet, one row an operation.

Only the columns that a check reads are read, strings as dictionaries. Nothing here makes a Python
object a row, and nothing loads more of Arrow than reading takes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shalott.checkers.engine import new_budget, ranks
from shalott.checkers.history.column_values import Words
from shalott.checkers.history.concurrent import (
    FAIL,
    INFO,
    INTEGER,
    NOTHING,
    OK,
    ConcurrentHistory,
    Values,
)
from shalott.checkers.reading.history_files import SHALOTT
from shalott.core.errors import UnreadableHistory
from shalott.core.history import holds_entries

_NEEDED: Final = ("process", "f", "type", "value", "invoke_ns", "complete_ns")
_OPTIONAL: Final = ("index", "key", "error", "offset")
_GET_OFFSETS: Final = ("send", "append")  # a log's answer to what was given is where it stands
_STRINGS: Final = ("f", "type", "key", "error")
_TYPES: Final = {"ok": OK, "fail": FAIL, "info": INFO}
_EMPTIED: Final = ("dequeue", "drain", "remove", "poll", "pop")  # engine/read_pair.c has the same
_NO_OFFSET: Final = -1
_NO_TIME: Final = np.iinfo(np.int64).max
CUT_SHORT: Final = "history.incomplete"  # harness/run/store.py leaves it beside a recovered history


def read_parquet(path: Path) -> ConcurrentHistory:
    """Reads a history.parquet. Raises UnreadableHistory."""
    if holds_entries(path):
        from shalott.checkers.reading.foreign_history import read_foreign

        return read_foreign(path, SHALOTT, keyed=False)
    try:
        return _history(path, _table(path))
    except UnicodeDecodeError as error:
        raise UnreadableHistory(f"cannot read {path}: a string in it is damaged") from error


def _table(path: Path) -> pa.Table:
    try:
        metadata = pq.read_metadata(path)
        names = metadata.schema.names
        missing = [name for name in _NEEDED if name not in names]
        if missing:
            raise UnreadableHistory(
                f"{path} is Parquet, but no history: it has no column {', '.join(missing)}"
            )
        strings = [name for name in _STRINGS if name in names]
        with pq.ParquetFile(
            path, metadata=metadata, read_dictionary=strings, memory_map=True
        ) as file:
            wanted = [name for name in (*_NEEDED, *_OPTIONAL) if name in names]
            return file.read(wanted, use_threads=False)  # threads cost more than they save
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise UnreadableHistory(f"cannot read {path}: {said}") from error


def _history(path: Path, table: pa.Table) -> ConcurrentHistory:
    process = _integers(path, table, "process")
    n = len(process)
    index = (
        _integers(path, table, "index") if "index" in table.column_names else np.arange(n)
    ).astype(np.int64, copy=False)
    invoked = _integers(path, table, "invoke_ns")
    completed = _integers(path, table, "complete_ns", _NO_TIME)
    f = _words(path, table, "f")
    kind = _types(path, table, index)
    is_early = (completed < invoked) & (process >= 0)
    if is_early.any():
        raise UnreadableHistory(
            f"{path}, operation {index[np.argmax(is_early)]}: it completes before it is invoked"
        )
    _require_known_processes(path, process, f, index)
    order = _order(process, invoked)
    call, ret = _ranks(invoked, completed, kind, order)
    found_nothing = _found_nothing(path, table, f, kind)
    kind[found_nothing] = OK
    values = _values(path, table)
    # One column holds what a dequeue took and what an enqueue brought: a dequeue asked for nothing.
    asks_nothing = f.among(_EMPTIED)
    history = ConcurrentHistory(
        f=f,
        key=_words(path, table, "key"),
        argument=_without(values, asks_nothing),
        result=_without(_results(path, table, f, values), found_nothing | (kind == INFO)),
        type=kind,
        process=process.astype(np.int32, copy=False),
        call=call,
        ret=ret,
        call_ns=invoked,
        ret_ns=np.where(completed == _NO_TIME, -1, completed),
        place=index,
        place_name="index",
        source=str(path),
        dialect="shalott",
        notes=_notes(path),
        cut="its last flush" if _is_cut(path) else "",
    )
    return history if order is None else history.take(order)


def _require_known_processes(
    path: Path, process: npt.NDArray[np.int32], f: Words, index: npt.NDArray[np.int64]
) -> None:
    """Refuses a row of no process, and one of the nemesis (-1) that does what clients do: damage
    that would leave an operation out without a word."""
    is_client = process >= 0
    if is_client.all():
        return
    by_clients = np.zeros(len(f.names), dtype=np.bool_)
    by_clients[f.codes[is_client]] = True
    is_odd = (process < -1) | (~is_client & by_clients[f.codes])
    if is_odd.any():
        row = int(np.argmax(is_odd))
        raise UnreadableHistory(
            f"{path}, operation {index[row]}: process {process[row]} does"
            f" {f.names[f.codes[row]]}, but a client is 0 or more, and the nemesis (-1) does"
            " nothing that clients do"
        )


def _is_cut(path: Path) -> bool:
    return (path.parent / CUT_SHORT).exists()


def _notes(path: Path) -> tuple[str, ...]:
    if _is_cut(path):
        return ("the recording was cut short: what came after its last flush is missing",)
    return ()


def _order(
    process: npt.NDArray[np.int32], invoked: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64] | None:
    """The clients' rows in order of invocation; None: all of them, as they are."""
    rows = None if (process >= 0).all() else np.flatnonzero(process >= 0)
    times = invoked if rows is None else invoked[rows]
    if (times[1:] >= times[:-1]).all():
        return rows
    order = np.argsort(times, kind="stable")
    return order if rows is None else rows[order]


def _ranks(
    invoked: npt.NDArray[np.int64],
    completed: npt.NDArray[np.int64],
    kind: npt.NDArray[np.uint8],
    order: npt.NDArray[np.int64] | None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Ranks by row; ``order`` are the rows that count, by invocation (None: all, in order)."""
    ends = np.where(kind == INFO, _NO_TIME, completed)
    if order is None:
        return ranks(invoked, ends, new_budget())[:2]
    call_of, ret_of, _ = ranks(invoked[order], ends[order], new_budget())
    call, ret = np.zeros_like(kind, dtype=np.int32), np.zeros_like(kind, dtype=np.int32)
    call[order], ret[order] = call_of, ret_of
    return call, ret


def _types(path: Path, table: pa.Table, index: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    words = _words(path, table, "type")
    code_of = np.array([_TYPES.get(name, 255) for name in words.names] or [255], dtype=np.uint8)
    kind = code_of[words.codes]
    unknown = kind == 255
    if unknown.any():
        row = int(np.argmax(unknown))
        raise UnreadableHistory(
            f"{path}, operation {index[row]}: a type is ok, fail or info,"
            f" not {words.names[words.codes[row]]!r}"
        )
    return kind


def _found_nothing(
    path: Path, table: pa.Table, f: Words, kind: npt.NDArray[np.uint8]
) -> npt.NDArray[np.bool_]:
    """Dequeues that failed since the queue was empty: that is an observation."""
    if "error" not in table.column_names:
        return np.zeros(len(kind), dtype=np.bool_)
    empty = _words(path, table, "error").equal("empty")
    if not empty.any():
        return empty
    return np.asarray(empty & (kind == FAIL) & f.among(_EMPTIED))


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _integers(
    path: Path, table: pa.Table, name: str, missing: int | None = None
) -> npt.NDArray[Any]:
    """A column of integers; ``missing`` stands for null, if null is allowed."""
    array = _column(table, name)
    if not pa.types.is_integer(array.type):
        raise UnreadableHistory(f"{path}: the column {name} holds {array.type}, not integers")
    if not array.null_count:
        return _raw(array)
    if missing is None:
        raise UnreadableHistory(f"{path}: the column {name} is null in some rows")
    return np.where(_present(array), _raw(array), missing)


def _present(array: pa.Array) -> npt.NDArray[np.bool_]:
    bits = np.frombuffer(array.buffers()[0], dtype=np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].astype(
        np.bool_
    )


def _raw(array: pa.Array) -> npt.NDArray[Any]:
    """The numbers of a column, where they lie; those of nulls mean nothing.

    Not Array.to_numpy: that loads pandas where it is installed, which takes longer than all else.
    """
    numbers = np.frombuffer(array.buffers()[1] or b"", dtype=f"i{array.type.bit_width // 8}")
    return numbers[array.offset : array.offset + len(array)]


def _values(path: Path, table: pa.Table) -> Values:
    array = _column(table, "value")
    if pa.types.is_null(array.type):
        zeros = np.zeros(len(array), dtype=np.int64)
        return Values(np.full(len(array), NOTHING, dtype=np.uint8), zeros)
    numbers = _integers(path, table, "value", 0).astype(np.int64, copy=False)
    if not array.null_count:
        return Values(np.full(len(array), INTEGER, dtype=np.uint8), numbers)
    return Values(np.where(_present(array), INTEGER, NOTHING).astype(np.uint8), numbers)


def _results(path: Path, table: pa.Table, f: Words, values: Values) -> Values:
    """What came back; that is the value, but of a log's sends the offset."""
    if "offset" not in table.column_names or not f.among(_GET_OFFSETS).any():
        return values
    sends = f.among(_GET_OFFSETS)
    offset = _integers(path, table, "offset", _NO_OFFSET)
    there = sends & (offset != _NO_OFFSET)
    kind = np.where(sends, np.where(there, INTEGER, NOTHING), values.kind).astype(np.uint8)
    number = np.where(sends, np.where(there, offset, 0), values.number)
    return Values(kind, number, values.forms, values.are_exact)


def _without(values: Values, rows: npt.NDArray[np.bool_]) -> Values:
    if not rows.any():
        return values
    return Values(
        np.where(rows, NOTHING, values.kind).astype(np.uint8, copy=False),
        np.where(rows, 0, values.number),
    )


def _words(path: Path, table: pa.Table, name: str) -> Words:
    if name not in table.column_names:
        return Words(np.zeros(table.num_rows, dtype=np.int32), ("",))
    array = _column(table, name)
    if pa.types.is_null(array.type):
        return Words(np.zeros(len(array), dtype=np.int32), ("",))
    if not pa.types.is_dictionary(array.type):
        if not pa.types.is_string(array.type) and not pa.types.is_large_string(array.type):
            raise UnreadableHistory(f"{path}: the column {name} holds {array.type}, not strings")
        array = array.dictionary_encode()
    names = tuple(array.dictionary.to_pylist())
    codes = array.indices
    if not codes.null_count:
        return _distinct(_raw(codes).astype(np.int32, copy=False), names)
    filled = np.where(_present(codes), _raw(codes), len(names)).astype(np.int32)
    return _distinct(filled, (*names, ""))


def _distinct(codes: npt.NDArray[np.int32], names: tuple[str, ...]) -> Words:
    """Dictionaries of several row groups may name a string twice."""
    code_of = {name: code for code, name in enumerate(dict.fromkeys(names))}
    if len(code_of) == len(names):
        return Words(codes, names)
    again = np.array([code_of[name] for name in names], dtype=np.int32)
    return Words(again[codes], tuple(code_of))
