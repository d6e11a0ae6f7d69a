"""The ``extra`` cells of many rows as columns: JSON that is parsed once for all, not row by row.

A cell is an object or null, which is {}. What is not of the kind that the schema names is taken for
absent, as a damaged cell is; one such cell must not spoil the rest, so that the slow way is only
gone where the quick one fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from shalott.checkers.consumers.rows.naming import Names
from shalott.checkers.history.cells import CellReader
from shalott.checkers.history.columns import Bools, Ints
from shalott.checkers.history.faults import decode_object

BLOCK_BYTES = 4 << 20  # larger than any cell, small enough for all cores to have some
DISTINCT_PART = 4  # where at most every fourth cell is new, the distinct ones are parsed alone

DEATHS = pa.list_(
    pa.struct([("queue", pa.string()), ("reason", pa.string()), ("count", pa.int64())])
)


class Extras:
    """The column of a history, by rows of its clients' operations. ``places``: where these are."""

    def __init__(self, column: pa.ChunkedArray, places: Ints | None) -> None:
        self._column, self._places = column, places
        self._reader = CellReader(column)

    def _where(self, rows: Ints) -> Ints:
        return rows if self._places is None else self._places[rows]

    def take(self, rows: Ints) -> pa.ChunkedArray:
        """The cells themselves."""
        where = self._where(rows)
        return self._column if len(where) == len(self._column) else self._column.take(where)

    def said(self, rows: Ints, schema: pa.Schema) -> Said:
        """What the cells of these rows say."""
        return Said(self, self._reader, rows, self._where(rows), schema)

    def repeated(self, rows: Ints, schema: pa.Schema) -> tuple[pa.Table, Ints]:
        """The same of cells that say the same again and again: what the distinct ones say, and
        which of them each row has."""
        found = self._reader.distinct(self._where(rows), len(rows) // DISTINCT_PART)
        if found is None:
            return parse(self.take(rows), schema), np.arange(len(rows))
        cells = pa.chunked_array([pa.array([cell or "{}" for cell in found.names], pa.string())])
        return _parse(cells, schema), found.codes.astype(np.int64)


class Said:
    """The columns of a schema. ``odd``: positions of cells that say more than numbers, truths and
    plain texts; ``table`` has those."""

    def __init__(
        self, extras: Extras, reader: CellReader, rows: Ints, where: Ints, schema: pa.Schema
    ) -> None:
        def of(kind: pa.DataType) -> list[str]:
            return [field.name for field in schema if field.type == kind]

        self._cells = reader.read(
            where, integers=of(pa.int64()), truths=of(pa.bool_()), texts=of(pa.string())
        )
        self.odd = self._cells.odd
        self.table = parse(extras.take(rows[self.odd]), schema)

    def integers(self, key: str, default: int) -> Ints:
        found = self._cells.integers(key, default)
        found[self.odd] = integers(self.table[key], default)
        return found

    def truths(self, key: str) -> Bools:
        found = self._cells.truths(key)
        found[self.odd] = pc.fill_null(self.table[key], False).to_numpy()
        return found

    def codes(self, key: str, names: Names) -> Ints:
        """Of a text, by ``names``."""
        words = self._cells.texts[key]
        table = np.array([names.code(name) for name in words.names], dtype=np.int64)
        found: Ints = table[words.codes]
        found[self.odd] = names.codes_in(self.table[key])
        return found


def parse(cells: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    """One row a cell, with the columns of ``schema``."""
    if cells.null_count == len(cells):
        nulls = [pa.nulls(len(cells), field.type) for field in schema]
        return pa.Table.from_arrays(nulls, schema=schema)
    return _parse(pc.fill_null(cells, "{}"), schema)


def _parse(cells: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    lines = pc.binary_join_element_wise(cells, "", "\n")
    if not len(lines):
        return schema.empty_table()
    # Large strings: all cells together may be longer than what 32 bits count.
    text = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in lines.chunks])
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    blocks = pa.json.ReadOptions(block_size=BLOCK_BYTES)
    offsets = np.frombuffer(text.buffers()[1], dtype=np.int64)
    begin, end = int(offsets[text.offset]), int(offsets[text.offset + len(text)])
    whole = text.buffers()[2].slice(begin, end - begin)
    try:
        table = pa.json.read_json(
            pa.BufferReader(whole), read_options=blocks, parse_options=options
        )
    except pa.ArrowInvalid:
        return _parse_slowly(cells, schema)
    if table.num_rows != len(cells):  # a line break within a cell, or an empty one
        return _parse_slowly(cells, schema)
    return table.select(schema.names)


def _parse_slowly(cells: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    objects = [decode_object(text) for text in cells.to_pylist()]
    columns = [
        pa.array([_as(each.get(field.name), field.type) for each in objects], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _as(value: Any, kind: pa.DataType) -> Any:
    """``value`` if it is of the kind, else None."""
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None


def integers(column: pa.ChunkedArray, default: int) -> Ints:
    """A column of int64, ``default`` where it is null."""
    if column.null_count == len(column):
        return np.full(len(column), default, dtype=np.int64)
    return np.asarray(pc.fill_null(column, default).to_numpy(), dtype=np.int64)
