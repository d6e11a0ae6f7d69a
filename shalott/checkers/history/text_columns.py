"""The ``extra`` cells of a history as columns: what some keys say, without an object a row.

Most cells are flat objects of numbers, texts and truths; the engine reads those
(checkers/engine/read.h). The others are named as odd, and are the caller's to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.engine import CData, column, ffi, lib
from shalott.checkers.history.column_values import Words

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
ABSENT = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Cells:
    """A row each. ``odd``: positions of those of which nothing was read here."""

    values: dict[str, Ints]  # of integers and truths: ABSENT where the key is not there
    texts: dict[str, Words]  # a text that is not there is ""
    odd: Ints

    def integers(self, key: str, default: int) -> Ints:
        values = self.values[key]
        return np.where(values == ABSENT, default, values)

    def truths(self, key: str) -> Bools:
        return np.asarray(self.values[key] == 1)


class CellReader:
    """Reads rows of one column of texts; a null is an empty object."""

    def __init__(self, extra: pa.ChunkedArray) -> None:
        if pa.types.is_dictionary(extra.type):
            extra = extra.cast(pa.string())
        chunks = [chunk for chunk in extra.chunks if len(chunk)]
        if len(chunks) > 1:  # together they may be longer than what 32 bits count
            chunks = [pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in chunks])]
        if chunks and not are_empty(chunks[0]):
            chunks = [pc.fill_null(chunks[0], "")]
        self._text: CData = b""
        self._ends = np.zeros(1, dtype=np.int64)
        if chunks:
            self._text, self._ends = memory_of(chunks[0])

    def read(
        self,
        rows: Ints,
        *,
        integers: Sequence[str] = (),
        truths: Sequence[str] = (),
        texts: Sequence[str] = (),
    ) -> Cells:
        """What these keys say in each of ``rows``, which are positions in the column."""
        keys = (*integers, *truths, *texts)
        kinds = np.repeat(
            np.array([lib.SHL_CELL_INTEGER, lib.SHL_CELL_TRUTH, lib.SHL_CELL_TEXT], np.uint8),
            [len(integers), len(truths), len(texts)],
        )
        count = len(rows)
        values = np.empty((len(keys), count), dtype=np.int64)
        odd = np.zeros(count, dtype=np.uint8)
        names = ffi.gc(lib.shl_texts_new(), lib.shl_texts_free)
        found = lib.shl_cells_read(
            ffi.from_buffer(self._text),
            column(self._ends),
            column(np.ascontiguousarray(rows, dtype=np.int64)),
            count,
            "".join(keys).encode(),
            column(np.cumsum([len(key.encode()) for key in keys]).astype(np.int32)),
            column(kinds),
            len(keys),
            ABSENT,
            column(values.reshape(-1)),
            column(odd),
            names,
        )
        if found < 0:
            raise MemoryError("reading the cells of a history takes more memory than there is")
        known = texts_of(names)
        plain = len(keys) - len(texts)
        return Cells(
            values={key: values[place] for place, key in enumerate(keys[:plain])},
            texts={
                key: _words(values[place], known) for place, key in enumerate(keys[plain:], plain)
            },
            odd=np.flatnonzero(odd),
        )

    def distinct(self, rows: Ints, most: int) -> Words | None:
        """Which of the different cells each of ``rows`` is; None: there are more than ``most``.
        A null is "".
        """
        numbers = np.empty(len(rows), dtype=np.int32)
        names = ffi.gc(lib.shl_texts_new(), lib.shl_texts_free)
        places = column(np.ascontiguousarray(rows, dtype=np.int64))
        found = number_cells(self._text, self._ends, places, numbers, most, names)
        return None if found == TOO_MANY else Words(numbers, texts_of(names)[1:])


def _words(numbers: Ints, names: tuple[str, ...]) -> Words:
    return Words(np.where(numbers == ABSENT, 0, numbers + 1).astype(np.int32), names)


# --- columns of texts as the engine reads them (engine/read.h) ------------------------------------

TOO_MANY = -2  # of shl_cells_number


def words_of(texts: pa.ChunkedArray) -> Words:
    """A column of texts as words: ten times as quick as Arrow, where few are different."""
    numbers = np.empty(len(texts), dtype=np.int32)
    names = ffi.gc(lib.shl_texts_new(), lib.shl_texts_free)
    begin = 0
    for chunk in texts.chunks:
        chunk = chunk if are_empty(chunk) else pc.fill_null(chunk, "")
        text, ends = memory_of(chunk)
        own = numbers[begin : begin + len(chunk)]
        number_cells(text, ends, ffi.NULL, own, len(texts), names)
        begin += len(chunk)
    return Words(numbers, texts_of(names)[1:])


def number_cells(
    text: CData, ends: npt.NDArray[np.int64], rows: CData, numbers: CData, most: int, names: CData
) -> int:
    """``numbers`` are filled; ``names`` has the texts of these numbers and those before."""
    found = int(
        lib.shl_cells_number(
            ffi.from_buffer(text), column(ends), rows, len(numbers), most, column(numbers), names
        )
    )
    if found < 0 and found != TOO_MANY:
        raise MemoryError("reading the cells of a history takes more memory than there is")
    return found


def are_empty(cells: pa.Array) -> bool:
    """Whether nothing lies where the nulls are, so that they need not be looked for."""
    if not cells.null_count:
        return True
    _, ends = memory_of(cells)
    lengths = ends[1:] - ends[:-1]
    return not lengths[pc.is_null(cells).to_numpy(zero_copy_only=False)].any()


def memory_of(cells: pa.Array) -> tuple[CData, npt.NDArray[np.int64]]:
    """The bytes of all cells, and where each begins and the last one ends."""
    _, ends, text = cells.buffers()
    kind = np.int64 if pa.types.is_large_string(cells.type) else np.int32
    offsets = np.frombuffer(ends, dtype=kind)[cells.offset : cells.offset + len(cells) + 1]
    return text if text is not None else b"", offsets.astype(np.int64)


def texts_of(names: CData) -> tuple[str, ...]:
    """First what is not there, then every text, in the order of their coming."""
    length = ffi.new("int64_t *")
    found = [""]
    for number in range(lib.shl_texts_count(names)):
        text = lib.shl_texts_text(names, number, length)
        found.append(ffi.buffer(text, length[0])[:].decode())
    return tuple(found)
