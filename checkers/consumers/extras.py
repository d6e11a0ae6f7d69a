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

from shalott.checkers.history.columns import Ints
from shalott.checkers.history.faults import decode_object

BLOCK_BYTES = 4 << 20  # larger than any cell, small enough for all cores to have some
DISTINCT_PART = 4  # where at most every fourth cell is new, the distinct ones are parsed alone

DEATHS = pa.list_(
    pa.struct([("queue", pa.string()), ("reason", pa.string()), ("count", pa.int64())])
)


def parse(cells: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    """One row a cell, with the columns of ``schema``."""
    if cells.null_count == len(cells):
        nulls = [pa.nulls(len(cells), field.type) for field in schema]
        return pa.Table.from_arrays(nulls, schema=schema)
    return _parse(pc.fill_null(cells, "{}"), schema)


def parse_repeated(cells: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    """The same for cells that say the same again and again."""
    encoded = pc.dictionary_encode(pc.fill_null(cells, "{}")).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0) if encoded.num_chunks else pa.array([], encoded.type)
    if len(encoded.dictionary) * DISTINCT_PART > len(cells):
        return parse(cells, schema)
    distinct = _parse(pa.chunked_array([encoded.dictionary]), schema)
    return distinct.take(encoded.indices)


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
