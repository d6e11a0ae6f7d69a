"""The ``extra`` texts of consumers' rows, as columns: each distinct text is parsed once.

A consumer's rows say the same few things again and again (who, whose, how it ended), so a million
deliveries have some hundred different texts. What is no object of the contract
(docs/reference/consumers.md, section 1) counts as malformed and reads as if nothing were said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.history.columns import Bools, Codes, Ints
from shalott.checkers.history.words import Words


class Extra(msgspec.Struct, frozen=True):
    """Whatever the ``extra`` of a row of the workload ``group`` may say, polls excepted."""

    member: str = ""
    group: str = ""
    broadcast: bool = False
    orderly: bool = False
    ended: str = ""
    why: str = ""
    held: bool = False
    outcome: str = ""
    reconsumed: int = 0
    tag: str | None = None
    level: int = 0
    delay: int = 0
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class Extras:
    """``codes``: by row, which of the texts it has."""

    codes: Codes
    texts: tuple[Extra, ...]
    malformed: int  # rows

    def words(self, what: Callable[[Extra], str]) -> Words:
        """One of the words, as a column."""
        said = [what(text) for text in self.texts]
        names = tuple(dict.fromkeys(said)) or ("",)
        number = {name: code for code, name in enumerate(names)}
        by_text = np.array([number[word] for word in said], dtype=np.int32)
        return Words(by_text[self.codes], names)

    def integers(self, what: Callable[[Extra], int | None], none: int = 0) -> Ints:
        """One of the numbers, as a column; ``none`` where nothing is said."""
        said = [what(text) for text in self.texts]
        by_text = np.array([none if each is None else each for each in said], dtype=np.int64)
        return np.asarray(by_text[self.codes])

    def flags(self, what: Callable[[Extra], bool]) -> Bools:
        """One of the flags, as a column."""
        return np.asarray(np.array([what(text) for text in self.texts], np.bool_)[self.codes])


def read_extras(column: pa.ChunkedArray) -> Extras:
    """Parse a column of JSON texts; a null is an empty object."""
    if not len(column):
        return Extras(np.zeros(0, dtype=np.int32), (Extra(),), 0)
    encoded = pc.dictionary_encode(pc.fill_null(column, "{}")).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    decoder = msgspec.json.Decoder(Extra)
    texts: list[Extra] = []
    damaged: list[int] = []
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            texts.append(decoder.decode(text))
        except msgspec.MsgspecError:
            texts.append(Extra())
            damaged.append(code)
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int32)
    malformed = int(np.isin(codes, damaged).sum()) if damaged else 0
    return Extras(codes, tuple(texts), malformed)
