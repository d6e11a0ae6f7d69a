"""A run's files as the checkers want them, read for speed: only the columns that are looked at,
strings as codes from the file on, and no Python object for a client's row.

What comes out is what ``read_history`` and ``client_operations`` give; tests hold the two against
each other. Columns that a file has beyond ours are not read; nullable ones that it lacks are nulls.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shalott.checkers.history.column_values import Words
from shalott.checkers.history.columns import NEVER, Bools, Ints, Operations
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.checkers.history.tenures import NodeEvent, read_events
from shalott.core.errors import StoreError
from shalott.core.history import EMPTY_EVENTS, EVENT_SCHEMA, HISTORY_SCHEMA, History
from shalott.core.sums import check_sum

Source = str | bytes  # a path of this machine, or a file's content

_WORDS = ("node", "f", "key", "type", "error")
_LOOKED_AT = (
    *("index", "process", "node", "f", "key", "value", "type"),
    *("invoke_ns", "complete_ns", "redelivered", "error", "extra"),
)
_PLAIN = pa.schema([HISTORY_SCHEMA.field(name) for name in _LOOKED_AT])


@dataclass(frozen=True)  # no slots: what is derived is kept when it was asked for
class RunData:
    """``history``: the rows of process -1 with two of clients that tell the run's end, and the
    node events; where a checker reads the rows of clients itself, all of them. ``given_back``: the
    same with rows of clients whose error says that they gave a message back."""

    ops: Operations
    history: History
    given_back: History

    @cached_property
    def around(self) -> Surroundings:
        return read_surroundings(self.history)

    @cached_property
    def events(self) -> list[NodeEvent]:
        return read_events(self.history)


def read_run(
    history: Source, events: Source | None, complete: bool, bucket: int = 0, buckets: int = 1
) -> RunData:
    """A run, or of its clients' rows those whose values fall into one bucket; what has no value is
    in the first. Raises OSError and pyarrow's errors."""
    told = read_table(events, EVENT_SCHEMA) if events is not None else EMPTY_EVENTS
    words = [*_WORDS, "extra"]
    file = pq.ParquetFile(_opened(history), read_dictionary=words, page_checksum_verification=True)
    names = [name for name in _LOOKED_AT if name in file.schema_arrow.names]
    pieces: list[Operations] = []
    control, given, last_ns = [], [_PLAIN.empty_table()], [0, 0]
    # Group by group: what a huge file takes is its clients' columns, and one group more.
    for number in range(file.num_row_groups):
        group = _with_nulls(file.read_row_group(number, columns=names, use_threads=False))
        control.append(_rows_of_no_client(group))
        last_ns = _last_ns(group, last_ns)
        if buckets > 1:
            group = group.filter(pa.array(_in_bucket(group, bucket, buckets)))
        given.append(_given_back(group))
        pieces.append(operations(group))
    rest = pa.concat_tables([*control, _ends(*last_ns)])
    return RunData(
        ops=_joined(pieces) if pieces else operations(_coded_nothing()),
        history=History(rest, told, complete),
        given_back=History(pa.concat_tables(given), told, complete),
    )


def _coded_nothing() -> pa.Table:
    return pa.table([pa.nulls(0, field.type) for field in _PLAIN], schema=_PLAIN)


def _joined(pieces: list[Operations]) -> Operations:
    """One after the other; column by column, so that nothing is there twice but one column."""
    if len(pieces) == 1:
        return pieces[0]
    own = [{name: getattr(piece, name) for name in piece.__slots__} for piece in pieces]
    pieces.clear()
    found: dict[str, Any] = {}
    for name in list(own[0]):
        columns = [columns.pop(name) for columns in own]
        is_words = isinstance(columns[0], Words)
        found[name] = _joined_words(columns) if is_words else np.concatenate(columns)
    return Operations(**found)


def _joined_words(columns: list[Words]) -> Words:
    """Each row group has words of its own."""
    names = tuple(dict.fromkeys(name for words in columns for name in words.names))
    places = {name: code for code, name in enumerate(names)}
    codes = []
    for words in columns:
        own = np.array([places[name] for name in words.names], dtype=np.int32)
        same = np.array_equal(own, np.arange(len(own)))
        codes.append(words.codes if same else own[words.codes])
    return Words(np.concatenate(codes), names)


def read_whole(history: Source, events: Source | None, complete: bool) -> History:
    """As ``read_history`` reads it, for checkers that want it so."""
    return History(
        ops=read_table(history, HISTORY_SCHEMA),
        events=read_table(events, EVENT_SCHEMA) if events is not None else EMPTY_EVENTS,
        complete=complete,
    )


def read_table(source: Source, schema: pa.Schema) -> pa.Table:
    """The schema's columns of a file. Raises ValueError: one that may not be null is missing."""
    file = pq.ParquetFile(_opened(source), page_checksum_verification=True)
    refuse_strange(file.schema_arrow, schema)
    names = [name for name in schema.names if name in file.schema_arrow.names]
    return _filled(file.read(columns=names, use_threads=False), schema)


def refuse_strange(found: pa.Schema, wanted: pa.Schema) -> None:
    """Raises ValueError, a sentence, if a column is missing that must not be, or is of another
    type. Other columns are passed over."""
    for field in wanted:
        if field.name not in found.names:
            if not field.nullable:
                raise ValueError(f"it has no column {field.name}")
        elif found.field(field.name).type != field.type:
            have = found.field(field.name).type
            raise ValueError(f"its column {field.name} is {have}, not {field.type}")


def operations(table: pa.Table) -> Operations:
    """What ``client_operations`` makes of it."""
    process = plain(table["process"])
    of_clients = process >= 0
    rows: slice | Ints = slice(None) if of_clients.all() else np.flatnonzero(of_clients)

    def numbers(name: str, default: int | None = None) -> Ints:
        column = table[name]
        if default is not None and column.null_count:
            column = pc.fill_null(column, default)
        return plain(column)[rows]

    def truths(column: pa.ChunkedArray) -> Bools:
        found: Bools = np.asarray(plain(column), dtype=np.bool_)[rows]
        return found

    return Operations(
        index=numbers("index"),
        process=process[rows],
        node=_words(table["node"], rows),
        f=_words(table["f"], rows),
        key=_words(table["key"], rows),
        value=numbers("value", 0),
        has_value=truths(pc.is_valid(table["value"])),
        type=_words(table["type"], rows),
        invoke_ns=numbers("invoke_ns"),
        complete_ns=numbers("complete_ns", NEVER),
        redelivered=truths(pc.fill_null(table["redelivered"], False)),
        error=_words(table["error"], rows),
    )


def plain(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[Any]:
    """Numbers or truths without nulls, as numpy has them."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


def _words(column: pa.ChunkedArray, rows: slice | Ints) -> Words:
    """A null is ""."""
    if column.null_count == len(column):
        return Words(np.zeros(len(column), dtype=np.int32)[rows], ("",))
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    encoded = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    names = tuple(encoded.dictionary.to_pylist())
    indices = encoded.indices
    if not indices.null_count:
        return Words(np.asarray(plain(indices), dtype=np.int32)[rows], names)
    codes = plain(pc.fill_null(indices, len(names)))[rows]
    if "" not in names:
        return Words(np.asarray(codes, dtype=np.int32), (*names, ""))
    codes = np.where(codes == len(names), names.index(""), codes)
    return Words(codes.astype(np.int32), names)


def _opened(source: Source) -> pa.BufferReader | str:
    """Raises OSError: it is not what was written."""
    if isinstance(source, bytes):
        return pa.BufferReader(source)
    try:
        check_sum(Path(source))
    except StoreError as error:
        raise OSError(str(error)) from error
    return source


def _filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _with_nulls(table: pa.Table) -> pa.Table:
    """With every column that is looked at; strings are codes, where the file's are."""
    refuse = pa.schema([_decoded(field) for field in table.schema])
    refuse_strange(refuse, _PLAIN)
    for name in _LOOKED_AT:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, _PLAIN.field(name).type))
    return table.select(_LOOKED_AT)


def _decoded(field: pa.Field) -> pa.Field:
    is_coded = pa.types.is_dictionary(field.type)
    return pa.field(field.name, field.type.value_type if is_coded else field.type)


def _rows_of_no_client(table: pa.Table) -> pa.Table:
    """Those of process -1, as ``read_surroundings`` reads them."""
    found = np.flatnonzero(plain(table["process"]) < 0)
    return _filled(table.take(pa.array(found)), _PLAIN)


def _last_ns(table: pa.Table, before: list[int]) -> list[int]:
    """The latest invocation and completion."""
    found = [pc.max(table[name]).as_py() or 0 for name in ("invoke_ns", "complete_ns")]
    return [max(pair) for pair in zip(before, found, strict=True)]


def _ends(invoke_ns: int, complete_ns: int) -> pa.Table:
    """A client's row that tells nothing but when the run ended."""
    row = {
        "index": -1, "process": 0, "node": "", "f": "", "key": "", "type": "info",
        "invoke_ns": invoke_ns, "complete_ns": complete_ns,
    }  # fmt: skip
    return pa.Table.from_pylist([row], schema=_PLAIN)


def _in_bucket(table: pa.Table, bucket: int, buckets: int) -> Bools:
    value = table["value"]
    number: Ints = plain(pc.fill_null(value, 0))
    with np.errstate(over="ignore"):
        mixed = (number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)
    of_bucket = (mixed % np.uint64(buckets)).astype(np.int64)
    of_bucket[~np.asarray(plain(pc.is_valid(value)), dtype=np.bool_)] = 0
    return np.asarray((of_bucket == bucket) & (plain(table["process"]) >= 0))


def _given_back(table: pa.Table) -> pa.Table:
    """The few rows that checkers/queues/redelivery.py reads again."""
    errors = table["error"]
    if errors.null_count == len(errors):
        return _PLAIN.empty_table()
    coded = errors.combine_chunks() if errors.num_chunks != 1 else errors.chunk(0)
    names = coded.dictionary.to_pylist()
    wanted = [code for code, name in enumerate(names) if (name or "").startswith("given back")]
    if not wanted:
        return _PLAIN.empty_table()
    rows = np.flatnonzero(np.isin(plain(pc.fill_null(coded.indices, -1)), wanted))
    return _filled(table.take(pa.array(rows)), _PLAIN)
