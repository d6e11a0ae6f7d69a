"""A concurrent history as the linearizability checkers take it: columns, from any source.

Readers (checkers/reading) make it, models and monitors encode it for the engine, explanations read
rows back. Nothing here is a Python object an operation: strings are dictionary-encoded, values that
are not integers are decoded once each.

An operation's ``argument`` is what it was invoked with and its ``result`` what it completed with
(Jepsen's :value of the two). Where a file has one value an operation (our own Parquet), both
columns hold it and each model reads the one that its f means.

No code changes a history or its columns; a changed one is made anew (``dataclasses.replace``). They
are no frozen dataclasses because those set each field by a call, which for the small histories that
are checked by the hundred is a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shalott.checkers.history.column_values import Rows, Words, exact

NEVER: Final = 2**31 - 1  # the ret of a crashed operation: SHL_NEVER in engine/engine.h

OK, FAIL, INFO = 0, 1, 2  # the codes of ``ConcurrentHistory.type``
NOTHING, INTEGER, FORM = 0, 1, 2  # the codes of ``Values.kind``


class Unknown:
    """What a crashed operation returned: it is not known."""

    _only: Unknown | None = None

    def __new__(cls) -> Unknown:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "?"


UNKNOWN: Final = Unknown()


class Failed:
    """What an operation that certainly did not happen returned."""

    _only: Failed | None = None

    def __new__(cls) -> Failed:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "failed"


FAILED: Final = Failed()


class Operation(NamedTuple):
    """One operation as a model sees it. ``result`` is UNKNOWN if it crashed, FAILED if it failed.

    ``process`` is told to models that ask for it (locks with owners); otherwise it is -1.
    """

    f: str
    argument: Hashable = None
    result: Hashable = None
    process: int = -1


@dataclass(slots=True)
class Values:
    """A column of values: nothing (nil), an integer, or one of ``forms`` (by its position).

    Forms are the distinct other values, decoded: str (keywords without their colon), bool, float,
    tuple (vectors and lists), frozenset.
    """

    kind: npt.NDArray[np.uint8]
    number: npt.NDArray[np.int64]  # 0 where nothing
    forms: tuple[Hashable, ...] = ()
    are_exact: bool = (
        False  # Python's equality is that of the forms (checkers.history.exact); False: ask
    )

    def __len__(self) -> int:
        return len(self.kind)

    def get(self, row: int) -> Hashable:
        kind, number = self.kind.item(row), self.number.item(row)
        return number if kind == INTEGER else None if kind == NOTHING else self.forms[number]

    def get_all(self, rows: npt.NDArray[np.integer]) -> list[Hashable]:
        kinds, numbers = self.kind[rows].tolist(), self.number[rows].tolist()
        return [
            number if kind == INTEGER else None if kind == NOTHING else self.forms[number]
            for kind, number in zip(kinds, numbers, strict=True)
        ]

    def take(self, rows: Rows) -> Values:
        return Values(self.kind[rows], self.number[rows], self.forms, self.are_exact)


@dataclass(slots=True)
class ConcurrentHistory:
    """n operations in the order of their invocations. Arrays have length n.

    ``call`` and ``ret`` are ranks: every event has its own number, in the order of the log (or of
    the clock; ties put invocations first). ``ret`` is NEVER for what never completed and for every
    ``info``: it may take effect at any later time, or never. ``fail`` certainly did not happen, and
    keeps its ret.
    """

    f: Words
    key: Words  # the object it is about; "" where there is one object only
    argument: Values
    result: Values
    type: npt.NDArray[np.uint8]  # OK, FAIL, INFO
    process: npt.NDArray[np.int32]
    call: npt.NDArray[np.int32]
    ret: npt.NDArray[np.int32]
    call_ns: npt.NDArray[np.int64] | None  # clock times, where the file has them
    ret_ns: npt.NDArray[np.int64] | None  # -1 where there is none
    place: npt.NDArray[np.int64]  # where each invocation stands in the file
    place_name: str = "index"  # what ``place`` counts: index, line
    source: str = ""  # the file
    dialect: str = ""  # shalott, jepsen, porcupine-etcd, porcupine-kv, violin
    notes: tuple[str, ...] = ()  # sentences for people: what was left out, and why
    cut: str = ""  # where the file is cut off ("line 12"), if it is: what came behind is not known
    error: Words | None = None  # of what failed, as the file has it, "": none; None: of none
    odd: tuple[str, ...] = ()  # what the notes say that may be read otherwise: "time", "index"

    def __len__(self) -> int:
        return len(self.call)

    def take(self, rows: Rows) -> ConcurrentHistory:
        """Some of its operations, ranks unchanged; of a slice the columns are views."""
        return replace(
            self,
            f=self.f.take(rows),
            key=self.key.take(rows),
            argument=self.argument.take(rows),
            result=self.result.take(rows),
            type=self.type[rows],
            process=self.process[rows],
            call=self.call[rows],
            ret=self.ret[rows],
            call_ns=None if self.call_ns is None else self.call_ns[rows],
            ret_ns=None if self.ret_ns is None else self.ret_ns[rows],
            place=self.place[rows],
            error=None if self.error is None else self.error.take(rows),
        )

    def operation(self, row: int) -> Operation:
        kind = self.type.item(row)
        return Operation(
            self.f.names[self.f.codes.item(row)],
            self.argument.get(row),
            self.result.get(row) if kind == OK else UNKNOWN if kind == INFO else FAILED,
            self.process.item(row),
        )

    def operations(self, rows: npt.NDArray[np.integer]) -> list[Operation]:
        names = self.f.names
        return [
            Operation(
                names[code],
                argument,
                result if kind == OK else UNKNOWN if kind == INFO else FAILED,
                process,
            )
            for code, argument, result, kind, process in zip(
                self.f.codes[rows].tolist(),
                self.argument.get_all(rows),
                self.result.get_all(rows),
                self.type[rows].tolist(),
                self.process[rows].tolist(),
                strict=True,
            )
        ]


class Row(NamedTuple):
    """An operation as people write it: for tests, notebooks and small histories."""

    process: int
    f: str
    argument: Hashable
    result: Hashable
    call: int
    ret: int | None  # None: it crashed
    type: str = "ok"
    key: str = ""


def from_rows(rows: Sequence[Row]) -> ConcurrentHistory:
    """A history from rows whose calls and rets are all different, in any order."""
    ordered = sorted(rows, key=lambda row: row.call)
    events = sorted(
        [row.call for row in ordered] + [row.ret for row in ordered if row.ret is not None]
    )
    if len(set(events)) != len(events):
        raise ValueError("every call and ret needs a time of its own")
    rank = {at: number for number, at in enumerate(events)}
    codes = {"ok": OK, "fail": FAIL, "info": INFO}
    return ConcurrentHistory(
        f=_words([row.f for row in ordered]),
        key=_words([row.key for row in ordered]),
        argument=_values([row.argument for row in ordered]),
        result=_values([row.result for row in ordered]),
        type=np.array(
            [INFO if row.ret is None else codes[row.type] for row in ordered], dtype=np.uint8
        ),
        process=np.array([row.process for row in ordered], dtype=np.int32),
        call=np.array([rank[row.call] for row in ordered], dtype=np.int32),
        ret=np.array(
            [NEVER if row.ret is None or row.type == "info" else rank[row.ret] for row in ordered],
            dtype=np.int32,
        ),
        call_ns=None,
        ret_ns=None,
        place=np.arange(len(ordered), dtype=np.int64),
    )


def _words(strings: Sequence[str]) -> Words:
    names = dict.fromkeys(strings)
    code = {name: number for number, name in enumerate(names)}
    return Words(np.array([code[name] for name in strings], dtype=np.int32), tuple(names))


def _values(values: Sequence[Hashable]) -> Values:
    kinds, numbers, forms = [], [], dict[Hashable, tuple[int, Hashable]]()
    for value in values:
        if value is None or value is UNKNOWN:
            kinds.append(NOTHING)
            numbers.append(0)
        elif isinstance(value, int) and not isinstance(value, bool):
            kinds.append(INTEGER)
            numbers.append(value)
        else:
            kinds.append(FORM)
            numbers.append(forms.setdefault(exact(value), (len(forms), value))[0])
    return Values(
        np.array(kinds, dtype=np.uint8),
        np.array(numbers, dtype=np.int64),
        tuple(value for _, value in forms.values()),
    )
