"""What a history looks like: which operations it has, and what forms their values have.

By its shape a history tells which model or judge it wants (checkers/reading/wanted.py), before it is
checked. A shape is made of entries, of all of a small file and of the beginning of a large one; the
names of operations are those of the whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shalott.checkers.history.column_values import MapPairs

# The forms of values.
NIL, INTEGER, NUMBER, TRUTH, WORD = "nil", "integer", "number", "truth", "word"
EMPTY = "empty"  # a list without elements
PAIR = "pair"  # a list of two that is nothing more special
KEYED = "keyed"  # a pair whose second is nil or a pair: [key nil], [key [from to]]
MOPS = "mops"  # micro-operations: [[:r 1 nil] [:append 2 3]]
LIST, MAP, SET = "list", "map", "set"

_MOP_FS: Final = frozenset({"r", "w", "append", "read", "write", "add", "incr", "inc", "dec", "send",
                            "poll", "assign", "subscribe"})  # fmt: skip
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
    keyed: bool = False  # values are [key value], or entries have a :key

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


class ShapeOf:
    """A shape in the making: it is told of entries."""

    def __init__(self) -> None:
        self._fs: dict[str, int] = {}
        self._forms: dict[str, dict[str, set[str]]] = {"invoke": {}, "ok": {}}
        self._types: dict[str, int] = {}
        self._mops: dict[str, set[str]] = {}
        self._map_keys: dict[str, set[str]] = {}
        self._errors: set[str] = set()
        self._has_key = False
        self._values = self._pairs = self._asked = 0  # of them pairs; and [key nil], [key [a b]]

    def name(self, f: str) -> None:
        """An operation of which no more is known than that it is there."""
        self._fs.setdefault(f, 1)

    def add(self, kind: str, f: str, value: Hashable, *, has_key: bool = False) -> None:
        """``kind``: invoke, ok, fail or info."""
        self._types[kind] = self._types.get(kind, 0) + 1
        self._fs[f] = self._fs.get(f, 0) + (kind == "invoke")
        self._has_key |= has_key
        if kind not in self._forms:
            return
        form = form_of(value)
        self._forms[kind].setdefault(f, set()).add(form)
        self._values += 1
        self._pairs += isinstance(value, tuple) and len(value) == 2
        self._asked += form == KEYED
        if form == MOPS:
            for mop in value:  # type: ignore[union-attr]
                self._mops.setdefault(str(mop[0]), set()).add(form_of(mop[-1]))
        elif form == MAP:
            keys = self._map_keys.setdefault(f, set())
            if len(keys) < 64:
                pairs = value.items() if isinstance(value, dict) else value
                keys.update(str(key) for key, _ in pairs)  # type: ignore[union-attr]

    def add_error(self, error: str) -> None:
        if len(self._errors) < 64:
            self._errors.add(error)

    def shape(self) -> Shape:
        keyed = self._has_key or (self._values == self._pairs > 0 and self._asked > 0)
        return Shape(
            fs=dict(self._fs),
            arguments={f: frozenset(each) for f, each in self._forms["invoke"].items()},
            results={f: frozenset(each) for f, each in self._forms["ok"].items()},
            types=dict(self._types),
            mops={f: frozenset(each) for f, each in self._mops.items()},
            map_keys={f: frozenset(each) for f, each in self._map_keys.items()},
            errors=frozenset(self._errors),
            keyed=keyed,
        )


def shape_of(entries: Iterable[tuple[str, str, Hashable]]) -> Shape:
    """Of (type, f, value) of entries of clients."""
    making = ShapeOf()
    for kind, f, value in entries:
        making.add(kind, f, value)
    return making.shape()
