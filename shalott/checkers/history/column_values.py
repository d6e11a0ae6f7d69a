"""When two values are one value: as EDN has it, where true, 1, 1.0 and 1M all differ.

Python takes them for equal, within collections too: ``[1]`` for ``[true]``. What compares values
or keeps them in a dict or a set (models, monitors, readers) asks here first.

A column of strings is small integers (``Words``: dictionary encoding). No Arrow is imported here,
so that a history of text is read without loading it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from types import NoneType
from typing import Final

import numpy as np
import numpy.typing as npt

# To a checker a keyword and a string of one text are one value, and a map is the set of its pairs,
# so that JSON and EDN are alike to it. These types remember which it was, for sentences only: they
# are equal to what they stand for.


class Keyword(str):
    """A keyword of EDN, without its colon: equal to the string of the same text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f":{self}"


class Symbol(str):
    """A symbol, a character, or a tagged value such as ``#inst "..."``: by its text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class MapPairs(frozenset[tuple[Hashable, Hashable]]):
    """The (key, value) pairs of a map: equal to the set of them."""

    __slots__ = ()


class JsonPairs(MapPairs):
    """One of JSON, whose text has colons."""

    __slots__ = ()


_PLAIN: Final = frozenset({int, str, NoneType, Keyword})  # only equal to what is the same
_LISTS: Final = frozenset({tuple, frozenset, MapPairs, JsonPairs})
_NAN: Final = (float, "nan")  # all of them are one value, though none is equal to itself


def exact(value: Hashable) -> Hashable:
    """``value`` such that Python's equality is the values'; itself, if nothing in it is mistaken.

    What could be mistaken becomes (its type, it); a type is no value that a history can hold.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in _LISTS:
        if _PLAIN.issuperset(map(type, value)):  # type: ignore[call-overload]
            return value
        return kind(map(exact, value))  # type: ignore[call-arg,call-overload]
    return _NAN if value != value else (kind, value)


def exact_all(values: Sequence[Hashable]) -> Sequence[Hashable]:
    """``exact`` of each, in less time where they are strings and flat vectors of plain values."""
    try:
        if _PLAIN.issuperset(map(type, chain.from_iterable(values))):  # type: ignore[arg-type]
            return values
    except TypeError:  # one is no collection
        pass
    return [exact(value) for value in values]


def original(value: Hashable) -> Hashable:
    """The value that ``exact`` made this of."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], type):
        return float("nan") if value == _NAN else value[1]
    if isinstance(value, tuple | frozenset):
        return type(value)(map(original, value))
    return value


Rows = npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice  # which rows of a column


@dataclass(slots=True)  # not frozen: see checkers.history.concurrent
class Words:
    """A string column: ``names[codes[i]]`` is row i's string; a null is ""."""

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...]

    def equal(self, name: str) -> npt.NDArray[np.bool_]:
        if name not in self.names:
            return np.zeros(len(self.codes), dtype=np.bool_)
        return np.asarray(self.codes == self.names.index(name))

    def among(self, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        wanted = [code for code, name in enumerate(self.names) if name in names]
        return np.asarray(np.isin(self.codes, wanted))

    def __getitem__(self, rows: Rows) -> Words:
        return self.take(rows)

    def take(self, rows: Rows) -> Words:
        return Words(self.codes[rows], self.names)
