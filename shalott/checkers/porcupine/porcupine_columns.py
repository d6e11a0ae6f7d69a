"""A history as the bridge to Porcupine takes it: numbers only. bridge/model.go names the columns.

Equal values (checkers.history.exact) become equal numbers, nil becomes 0. What an argument or a
result of an f is written as stands in ``SPELLINGS``, and in the Go file of the model. Failed
operations are left out unless the model takes a failure for an observation, and crashed ones that
could not have changed anything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.history.column_values import exact
from shalott.checkers.history.concurrent import (
    FAIL,
    FAILED,
    INFO,
    NEVER,
    UNKNOWN,
    ConcurrentHistory,
)
from shalott.checkers.models import (
    CasRegister,
    Model,
    MultiRegister,
    Register,
    meanings_of,
    model_name,
    own_name,
)
from shalott.core.errors import UsageError

Ints64 = npt.NDArray[np.int64]

COLUMNS: Final = 9
RETURN_NEVER: Final = 2**63 - 1  # neverReturned in bridge/model.go

NOTHING, TEXT, VECTOR, OTHER = range(4)  # what a value that is written out is: bridge/objects.go


@dataclass(frozen=True, slots=True)
class EncodedHistory:
    model: str
    options: Ints64
    rows: Ints64  # operations x COLUMNS
    values: Ints64
    places: npt.NDArray[np.intp]  # the history's row of each operation


@dataclass(slots=True)
class Numbers:
    """The number of each value, and of each name of a register."""

    of_values: dict[Hashable, int] = field(default_factory=dict)
    of_names: dict[Hashable, int] = field(default_factory=dict)

    def value(self, value: Hashable) -> int:
        if value is None:
            return 0
        return self.of_values.setdefault(exact(value), len(self.of_values) + 1)

    def name(self, name: Hashable) -> int:
        return self.of_names.setdefault(exact(name), len(self.of_names))


Spell = Callable[[Hashable, Numbers], list[int]]


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a model's operations are written. ``fs`` are numbered in the order of the Go file.

    An f that is not in ``arguments`` or ``results`` has none that the model reads.
    """

    fs: tuple[str, ...]
    arguments: Mapping[str, Spell] = field(default_factory=dict)
    results: Mapping[str, Spell] = field(default_factory=dict)
    options: Callable[[Any, Numbers], list[int]] = lambda model, numbers: []


def encode(history: ConcurrentHistory, model: Model) -> EncodedHistory:
    """``history``: with the model's own f names (``transitions.canonical``).

    Raises UsageError: the bridge does not have the model; an operation that the model does not
    understand, with its place.
    """
    name = own_name(model)
    spelling = SPELLINGS.get(name)
    if spelling is None:
        raise UsageError(
            f"the bridge to Porcupine has no model {model_name(model)}: it has"
            f" {', '.join(SPELLINGS)}"
        )
    places = _counting(history, model)
    numbers, values = Numbers(), list[int]()
    columns: dict[str, list[int]] = {"f": [], "argument": [], "result": [], "end": []}
    for place, operation in zip(places, history.operations(places), strict=True):
        columns["f"].append(spelling.fs.index(operation.f))
        try:
            columns["argument"].append(len(values))
            if spell := spelling.arguments.get(operation.f):
                values += spell(operation.argument, numbers)
            columns["result"].append(len(values))
            spell = spelling.results.get(operation.f)
            if spell and operation.result is not UNKNOWN and operation.result is not FAILED:
                values += spell(operation.result, numbers)
            columns["end"].append(len(values))
        except (ValueError, TypeError) as refused:
            where = f"{history.place_name} {history.place[place]}"
            raise UsageError(f"model {name} can't take {where}: {refused}") from None
    rows = np.empty((len(places), COLUMNS), dtype=np.int64)
    returned = history.ret[places].astype(np.int64)
    told = history.key.codes, history.type, history.process, history.call
    key, kind, process, call = (column[places] for column in told)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], rows[:, 4] = (
        key,
        columns["f"],
        kind,
        process,
        call,
    )
    rows[:, 5] = np.where(returned == NEVER, RETURN_NEVER, returned)
    rows[:, 6], rows[:, 7], rows[:, 8] = columns["argument"], columns["result"], columns["end"]
    options = np.array(spelling.options(model, numbers), dtype=np.int64)
    return EncodedHistory(name, options, rows, np.array(values, dtype=np.int64), places)


def _counting(history: ConcurrentHistory, model: Model) -> npt.NDArray[np.int64]:
    """The rows that say something. Names that no row has are passed over: a stored run's are those
    of its nemesis, too."""
    own = {meaning.f: meaning for meaning in (meanings_of(model) or {}).values()}
    known = [own.get(name) for name in history.f.names]
    observed = np.array([each and each.failed for each in known], dtype=bool)[history.f.codes]
    pure = np.array([each and each.pure for each in known], dtype=bool)[history.f.codes]
    left_out = ((history.type == FAIL) & ~observed) | ((history.type == INFO) & pure)
    return np.flatnonzero(~left_out)


# --- how values are written -----------------------------------------------------------------------


def _value(value: Hashable, numbers: Numbers) -> list[int]:
    return [numbers.value(value)]


def _pair(value: Hashable, numbers: Numbers) -> list[int]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise ValueError(f"a cas needs a pair (from, to), not {value!r}")
    return [numbers.value(value[0]), numbers.value(value[1])]


def _whether_refused(value: Hashable, numbers: Numbers) -> list[int]:
    return [0] if value is False else []


def _written_out(value: Hashable, numbers: Numbers) -> list[int]:
    if value is None:
        return [NOTHING]
    if isinstance(value, str):
        return [TEXT, *map(ord, value)]
    if isinstance(value, tuple):
        return [VECTOR, *map(numbers.value, value)]
    return [OTHER, numbers.value(value)]


def _element_and_written_out(value: Hashable, numbers: Numbers) -> list[int]:
    return [numbers.value(value), *_written_out(value, numbers)]


def _reads(value: Hashable, numbers: Numbers) -> list[int]:
    return [0] if value is None else [1, *_pairs(0, value, numbers)]


def _writes(value: Hashable, numbers: Numbers) -> list[int]:
    return [1, *_pairs(1, value, numbers)]


def _pairs(word: int, value: Hashable, numbers: Numbers) -> list[int]:
    if not isinstance(value, tuple | frozenset):
        raise ValueError(f"several registers need (name, value) pairs, not {value!r}")
    written = []
    for name, held in value:
        written += [word, numbers.name(name), numbers.value(held)]
    return written


def _micro_operations(value: Hashable, numbers: Numbers) -> list[int]:
    if value is None:
        return [0]
    if not isinstance(value, tuple):
        raise ValueError(f"a txn needs (f, name, value) triples, not {value!r}")
    written = [1]
    for word, name, held in value:
        if word not in ("read", "r", "write", "w"):
            raise ValueError(f"a txn reads and writes: {word!r} is neither")
        written += [int(word in ("write", "w")), numbers.name(name), numbers.value(held)]
    return written


def _truth(value: Hashable, numbers: Numbers) -> list[int]:
    if not isinstance(value, bool):
        raise ValueError(f"contains returns true or false, not {value!r}")
    return [int(value)]


def _truth_if_told(value: Hashable, numbers: Numbers) -> list[int]:
    return [int(value)] if isinstance(value, bool) else []


def _elements(value: Hashable, numbers: Numbers) -> list[int]:
    if not isinstance(value, tuple | frozenset):
        raise ValueError(f"a read of a set returns its elements, not {value!r}")
    return sorted(dict.fromkeys(map(numbers.value, value)))


def _token(value: Hashable, numbers: Numbers) -> list[int]:
    if value is None:
        return []
    if type(value) is not int:
        raise ValueError(f"a token is an integer, not {value!r}")
    return [value]


def _permits(value: Hashable, numbers: Numbers) -> list[int]:
    count = 1 if value is None else value
    if type(count) is not int or count < 1:
        raise ValueError(f"a semaphore needs a number of permits, not {value!r}")
    return [count]


def _amount(value: Hashable, numbers: Numbers) -> list[int]:
    amount = 1 if value is None else value
    if type(amount) is not int:
        raise ValueError(f"a counter needs an integer, not {value!r}")
    return [amount]


def _sum(value: Hashable, numbers: Numbers) -> list[int]:
    return [value] if type(value) is int else []


def _offset(value: Hashable, numbers: Numbers) -> list[int]:
    if type(value) is not int or value < 0:
        raise ValueError(f"a read needs an offset, not {value!r}")
    return [value]


def _length(value: Hashable, numbers: Numbers) -> list[int]:
    return [value] if type(value) is int else [-1]  # -1: no log has that length


def _length_if_told(value: Hashable, numbers: Numbers) -> list[int]:
    return [] if value is None else _length(value, numbers)


# --- the models -----------------------------------------------------------------------------------


def _register_options(model: Register | CasRegister | MultiRegister, numbers: Numbers) -> list[int]:
    return [numbers.value(model.initial), int(model.nil == "any")]


def _multi_register_options(model: MultiRegister, numbers: Numbers) -> list[int]:
    return [*_register_options(model, numbers), len(numbers.of_names)]


_QUEUE: Final = Spelling(("enqueue", "dequeue"), {"enqueue": _value}, {"dequeue": _value})
_LOCK: Final = ("acquire", "release")

SPELLINGS: Final = {
    "register": Spelling(("read", "write"), {"write": _value}, {"read": _value}, _register_options),
    "cas-register": Spelling(
        ("read", "write", "cas"),
        {"write": _value, "cas": _pair},
        {"read": _value, "cas": _whether_refused},
        _register_options,
    ),
    "multi-register": Spelling(
        ("read", "write", "txn"),
        {"write": _writes, "txn": _micro_operations},
        {"read": _reads, "txn": _micro_operations},
        _multi_register_options,
    ),
    "key-value": Spelling(
        ("get", "put", "append"),
        {"put": _written_out, "append": _element_and_written_out},
        {"get": _written_out},
        lambda model, numbers: _written_out(model.initial, numbers),
    ),
    "fifo-queue": _QUEUE,
    "unordered-queue": _QUEUE,
    "set": Spelling(
        ("add", "remove", "contains", "read"),
        {"add": _value, "remove": _value, "contains": _value},
        {"add": _truth_if_told, "remove": _truth_if_told, "contains": _truth, "read": _elements},
    ),
    "mutex": Spelling(_LOCK),
    "owner-lock": Spelling(_LOCK),
    "reentrant-lock": Spelling(_LOCK, options=lambda model, numbers: [model.limit]),
    "fenced-lock": Spelling(_LOCK, results={"acquire": _token}),
    "semaphore": Spelling(
        _LOCK,
        {"acquire": _permits, "release": _permits},
        options=lambda model, numbers: [model.permits],
    ),
    "log": Spelling(
        ("append", "read", "tail"),
        {"append": _value, "read": _offset},
        {"append": _length_if_told, "read": _value, "tail": _length},
    ),
    "counter": Spelling(
        ("inc", "dec", "read"),
        {"inc": _amount, "dec": _amount},
        {"read": _sum},
        lambda model, numbers: [model.initial],
    ),
}
