"""The ``extra`` cells of many rows as columns: JSON that is parsed once for all, not row by row.

A cell is an object or null, which is {}. What is not of the kind that the schema names is taken for
absent, as a damaged cell is; one such cell must not spoil the rest, so that the slow way is only
gone where the quick one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from shalott.checkers.consumers.rows import NONE, Death
from shalott.checkers.history.column_values import Words
from shalott.checkers.history.columns import Bools, Codes, Ints
from shalott.checkers.history.faults import decode_object
from shalott.checkers.history.text_columns import CellReader

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
        where = self._where(rows)
        return self._column if len(where) == len(self._column) else self._column.take(where)

    def said(self, rows: Ints, schema: pa.Schema) -> Said:
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


def _as(value: object, kind: pa.DataType) -> object:
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


# Names as small integers, and messages found by their queue and value.

Cell = Mapping[str, Any]  # a JSON object as Arrow gives it
Lives = tuple[tuple[Death, ...], ...]  # the deaths of each life, the latest first
FACTOR = np.uint64(0x9E3779B97F4A7C15)
DENSE = 8  # a table of values may be so many times as long as there are values


class Names:
    """Strings in the order in which they were seen first. "" has no code: NONE."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._codes = {name: code for code, name in enumerate(dict.fromkeys(known)) if name}

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self._codes)

    def code(self, name: str | None) -> int:
        if not name:
            return NONE
        return self._codes.setdefault(name, len(self._codes))

    def codes_of(self, words: Words, rows: Ints) -> Ints:
        """Of a column's rows; only what stands there is named."""
        picked = words.codes[rows]
        table = np.full(len(words.names) + 1, NONE, dtype=np.int64)
        for code in np.flatnonzero(np.bincount(picked, minlength=len(words.names))):
            table[code] = self.code(words.names[code])
        return np.asarray(table[picked])

    def codes_in(self, column: pa.ChunkedArray | pa.Array) -> Ints:
        if not len(column):
            return np.zeros(0, dtype=np.int64)
        encoded = pc.dictionary_encode(pc.fill_null(column, ""))
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.chunk(0)
        table = [self.code(name) for name in encoded.dictionary.to_pylist()]
        codes: Ints = np.array(table, dtype=np.int64)
        found: Ints = codes[encoded.indices.to_numpy(zero_copy_only=False)]
        return found


def places(queue: Ints, value: Ints, queues: int) -> Callable[[Ints, Ints], Ints]:
    """A look-up of (queue, value) pairs: the position of each that is wanted, NONE if there is
    none. Of several that are equal the first counts."""
    rising = not len(value) or bool((value[1:] >= value[:-1]).all())  # as generators give them
    order = np.arange(len(value)) if rising else np.argsort(value, kind="stable")
    values = value[order]
    fresh = np.ones(len(values), dtype=np.bool_)
    fresh[1:] = values[1:] != values[:-1]
    distinct, first = values[fresh], order[fresh]
    number = np.empty(len(value), dtype=np.int64)
    number[order] = np.cumsum(fresh) - 1
    # Most values are in one queue; those in several have a table of queues each.
    alone = np.diff(np.append(np.flatnonzero(fresh), len(values))) == 1
    rank, width = np.cumsum(~alone) - 1, max(queues, 1)
    shared = np.flatnonzero(~alone[number])
    table = np.full(int((~alone).sum()) * width, NONE, dtype=np.int64)
    table[(rank[number[shared]] * width + queue[shared])[::-1]] = shared[::-1]
    find = _finder(distinct)

    def look_up(wanted_queue: Ints, wanted_value: Ints) -> Ints:
        if not len(distinct):
            return np.full(len(wanted_queue), NONE, dtype=np.int64)
        at = find(wanted_value)
        known = (at >= 0) & (wanted_queue >= 0) & (wanted_queue < width)
        at = np.where(known, at, 0)
        found = np.where(known & (queue[first[at]] == wanted_queue), first[at], NONE)
        several = np.flatnonzero(known & ~alone[at])
        found[several] = table[rank[at[several]] * width + wanted_queue[several]]
        return np.asarray(found)

    return look_up


def _finder(distinct: Ints) -> Callable[[Ints], Ints]:
    """Where each wanted value is among the sorted ones, NONE if nowhere."""
    if not len(distinct):
        return lambda wanted: np.full(len(wanted), NONE, dtype=np.int64)
    low, high = int(distinct[0]), int(distinct[-1])
    if high - low < DENSE * len(distinct) + 1024:  # a table beats a search
        table = np.full(high - low + 1, NONE, dtype=np.int64)
        table[distinct - low] = np.arange(len(distinct))

        def in_table(wanted: Ints) -> Ints:
            inside = (wanted >= low) & (wanted <= high)
            return np.where(inside, table[np.where(inside, wanted - low, 0)], NONE)

        return in_table

    def by_search(wanted: Ints) -> Ints:
        order = np.argsort(wanted)  # a search for rising values stays in the cache
        found = np.empty(len(wanted), dtype=np.int64)
        found[order] = np.searchsorted(distinct, wanted[order])
        found = np.minimum(found, len(distinct) - 1)
        return np.where(distinct[found] == wanted, found, NONE)

    return by_search


def lives_of(deaths: pa.ChunkedArray) -> tuple[Codes, Lives]:
    """Each row's deaths as a code, and the deaths of each code, the latest first; 0: none."""
    life = np.zeros(len(deaths), dtype=np.int32)
    lives: list[tuple[Death, ...]] = [()]
    if deaths.null_count == len(deaths):
        return life, tuple(lives)
    rows = np.flatnonzero(pc.is_valid(deaths).to_numpy())
    if not len(rows):
        return life, tuple(lives)
    told = deaths.take(pa.array(rows)).combine_chunks()
    told = pa.concat_arrays(told.chunks) if isinstance(told, pa.ChunkedArray) else told
    marks = _marks(told)
    _, first, which = np.unique(marks, return_index=True, return_inverse=True)
    codes = []
    for place in first:
        found = tuple(
            Death(each["queue"] or "", each["reason"] or "", int(each["count"] or 1))
            for each in told[int(place)].as_py()
            if each is not None
        )
        codes.append(lives.index(found) if found in lives else len(lives))
        lives += [found] if found not in lives else []
    life[rows] = np.array(codes, dtype=np.int32)[which]
    return life, tuple(lives)


def _marks(told: pa.Array) -> npt.NDArray[np.uint64]:
    """A number a list, equal for equal ones: a polynomial over its entries, modulo 2^64."""
    lengths = pc.list_value_length(told).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = pc.list_flatten(told)
    marks = np.zeros(len(told), dtype=np.uint64)
    if not len(flat):
        return marks
    words = pc.binary_join_element_wise(
        pc.fill_null(flat.field("queue"), ""), pc.fill_null(flat.field("reason"), ""), "\n"
    )
    word = np.asarray(Names().codes_in(words)).astype(np.uint64) + np.uint64(1)
    count = np.asarray(pc.fill_null(flat.field("count"), 1).to_numpy(zero_copy_only=False))
    entry = (word << np.uint64(40)) + count.astype(np.uint64)
    begin = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    for depth in range(int(lengths.max())):
        has = lengths > depth
        marks[has] = marks[has] * FACTOR + entry[begin[has] + depth]
    return marks
