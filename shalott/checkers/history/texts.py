"""Columns of texts as the engine reads them: their bytes, and each different text as a number.

See checkers/engine/read.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.engine import column, ffi, lib
from shalott.checkers.history.words import Words

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
    text: Any, ends: npt.NDArray[np.int64], rows: Any, numbers: Any, most: int, names: Any
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


def memory_of(cells: pa.Array) -> tuple[Any, npt.NDArray[np.int64]]:
    """The bytes of all cells, and where each begins and the last one ends."""
    _, ends, text = cells.buffers()
    kind = np.int64 if pa.types.is_large_string(cells.type) else np.int32
    offsets = np.frombuffer(ends, dtype=kind)[cells.offset : cells.offset + len(cells) + 1]
    return text if text is not None else b"", offsets.astype(np.int64)


def texts_of(names: Any) -> tuple[str, ...]:
    """First what is not there, then every text, in the order of their coming."""
    length = ffi.new("int64_t *")
    found = [""]
    for number in range(lib.shl_texts_count(names)):
        text = lib.shl_texts_text(names, number, length)
        found.append(ffi.buffer(text, length[0])[:].decode())
    return tuple(found)
