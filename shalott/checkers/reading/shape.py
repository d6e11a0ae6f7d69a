"""What a history looks like: which operations it has, and what forms their values have.

By its shape a history tells which model or judge it wants (checkers/wanted.py), before it is
checked. A shape is made of entries: of all of a small file, of both ends of a large one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shalott.checkers.history.column_values import MapPairs
from shalott.checkers.history.concurrent import OK, ConcurrentHistory

# The forms of values.
NIL, INTEGER, NUMBER, TRUTH, WORD = "nil", "integer", "number", "truth", "word"
EMPTY = "empty"  # a list without elements
PAIR = "pair"  # a list of two that is nothing more special
KEYED = "keyed"  # a pair whose second is nil or a pair: [key nil], [key [from to]]
MOPS = "mops"  # micro-operations: [[:r 1 nil] [:append 2 3]]
LIST, MAP, SET = "list", "map", "set"

_MOP_FS: Final = frozenset(
    [
        "r",
        "w",
        "append",
        "read",
        "write",
        "add",
        "incr",
        "inc",
        "dec",
        "send",
        "poll",
        "assign",
        "subscribe",
    ]
)
ENTRIES: Final = 20_000  # that are looked at
_MOST: Final = 64  # of keys and errors that are remembered
NO_FORMS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the operations of clients; what the nemesis did is left out.

    ``fs``: how many were invoked, by name. ``arguments``: the forms of what they were invoked with,
    ``results``: of what they returned with ok. ``mops``: the names of micro-operations, with the
    forms of what those returned. ``map_keys``: the keys of maps that are values, by f.
    """

    fs: Mapping[str, int] = field(default_factory=dict)
    arguments: Mapping[str, frozenset[str]] = field(default_factory=dict)
    results: Mapping[str, frozenset[str]] = field(default_factory=dict)
    types: Mapping[str, int] = field(default_factory=dict)
    mops: Mapping[str, frozenset[str]] = field(default_factory=dict)
    map_keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    errors: frozenset[str] = NO_FORMS
    keyed: bool = False  # values are [key value]: the forms are those of what stands behind keys
    has_key: bool = False  # entries have a :key

    def has(self, *fs: str) -> bool:
        """Whether it has all of these operations."""
        return all(f in self.fs for f in fs)

    def has_any(self, *fs: str) -> bool:
        return any(f in self.fs for f in fs)

    def within(self, *fs: str) -> bool:
        """Whether it has operations, and none but these."""
        return bool(self.fs) and set(self.fs) <= set(fs)

    def argument(self, f: str) -> frozenset[str]:
        return self.arguments.get(f, NO_FORMS)

    def result(self, f: str) -> frozenset[str]:
        return self.results.get(f, NO_FORMS)


def form_of(value: Hashable) -> str:
    if value is None:
        return NIL
    if isinstance(value, bool):
        return TRUTH
    if isinstance(value, int):
        return INTEGER
    if isinstance(value, str):
        return WORD
    if isinstance(value, MapPairs | dict):
        return MAP
    if isinstance(value, frozenset):
        return SET
    if isinstance(value, tuple):
        return _form_of_list(value)
    return NUMBER


def _form_of_list(value: tuple[Hashable, ...]) -> str:
    if not value:
        return EMPTY
    if all(is_mop(each) for each in value):
        return MOPS
    if len(value) != 2:
        return LIST
    second = value[1]
    return KEYED if second is None or (isinstance(second, tuple) and len(second) == 2) else PAIR


def is_mop(value: Hashable) -> bool:
    """``[:r 1 nil]``, ``[:append 2 3]``, ``[:send "k" 1]``, ``[:poll {...}]``."""
    return (
        isinstance(value, tuple)
        and 1 <= len(value) <= 3
        and isinstance(value[0], str)
        and value[0] in _MOP_FS
    )


class _Forms:
    """The forms of values, as far as they were met."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, set[str]]] = {"invoke": {}, "ok": {}}
        self.mops: dict[str, set[str]] = {}
        self.map_keys: dict[str, set[str]] = {}

    def add(self, kind: str, f: str, value: Hashable) -> str:
        form = form_of(value)
        self.of[kind].setdefault(f, set()).add(form)
        if form == MOPS and isinstance(value, tuple):
            for mop in value:
                assert isinstance(mop, tuple)
                self.mops.setdefault(str(mop[0]), set()).add(form_of(mop[-1]))
        elif form == MAP:
            keys = self.map_keys.setdefault(f, set())
            if len(keys) < _MOST:
                keys.update(_names_in(value))
        return form


def _names_in(value: Hashable) -> Iterator[str]:
    """The keys of a map."""
    if isinstance(value, dict | MapPairs):
        yield from map(str, dict(value))


class ShapeOf:
    """A shape in the making: it is told of entries."""

    def __init__(self) -> None:
        self._fs: dict[str, int] = {}
        self._types: dict[str, int] = {}
        self._errors: set[str] = set()
        self._has_key = False
        self._whole, self._inner = _Forms(), _Forms()  # of values; of what stands behind a key
        self._values = self._pairs = self._asked = 0  # of them pairs; [key nil] and [key [a b]]

    def name(self, f: str) -> None:
        """An operation of which no more is known than that it is there."""
        self._fs.setdefault(f, 1)

    def add(self, kind: str, f: str, value: Hashable, *, has_key: bool = False) -> None:
        """``kind``: invoke, ok, fail or info."""
        self._types[kind] = self._types.get(kind, 0) + 1
        self._fs[f] = self._fs.get(f, 0) + (kind == "invoke")
        self._has_key |= has_key
        if kind not in self._whole.of:
            return
        form = self._whole.add(kind, f, value)
        self._values += 1
        if isinstance(value, tuple) and len(value) == 2 and form != MOPS:
            self._pairs += 1
            self._asked += form == KEYED
            self._inner.add(kind, f, value[1])

    def add_error(self, error: str) -> None:
        if len(self._errors) < _MOST:
            self._errors.add(error)

    def shape(self) -> Shape:
        keyed = self._values == self._pairs > 0 and self._asked > 0
        forms = self._inner if keyed else self._whole
        return Shape(
            fs=dict(self._fs),
            arguments={f: frozenset(each) for f, each in forms.of["invoke"].items()},
            results={f: frozenset(each) for f, each in forms.of["ok"].items()},
            types=dict(self._types),
            mops={f: frozenset(each) for f, each in forms.mops.items()},
            map_keys={f: frozenset(each) for f, each in forms.map_keys.items()},
            errors=frozenset(self._errors),
            keyed=keyed,
            has_key=self._has_key,
        )


def shape_of(entries: Iterable[tuple[str, str, Hashable]]) -> Shape:
    """Of (type, f, value) of entries of clients."""
    making = ShapeOf()
    for kind, f, value in entries:
        making.add(kind, f, value)
    return making.shape()


def shape_of_history(history: ConcurrentHistory) -> Shape:
    """Of a history that was read already: all of its names, and its first operations."""
    making = ShapeOf()
    rows = np.arange(min(len(history), ENTRIES), dtype=np.int64)
    has_key = history.key.names != ("",) and bool(history.key.names)
    for operation, kind in zip(history.operations(rows), history.type[rows].tolist(), strict=True):
        making.add("invoke", operation.f, operation.argument, has_key=has_key)
        result = operation.result if kind == OK else None
        making.add(("ok", "fail", "info")[kind], operation.f, result)
    for code in np.unique(history.f.codes).tolist():
        making.name(history.f.names[code])
    return making.shape()
