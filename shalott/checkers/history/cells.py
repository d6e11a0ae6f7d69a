"""The ``extra`` cells of a history as columns: what some keys say, without an object a row.

Most cells are flat objects of numbers, texts and truths; the engine reads those
(checkers/engine/read.h). The others are named as odd, and are the caller's to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.engine import column, ffi, lib
from shalott.checkers.history.columns import Bools, Ints
from shalott.checkers.history.texts import (
    TOO_MANY,
    are_empty,
    memory_of,
    number_cells,
    texts_of,
)
from shalott.checkers.history.words import Words

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
        self._text: Any = b""
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
