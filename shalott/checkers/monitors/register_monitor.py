"""Registers, also with compare-and-set, whose observed values were each written once: zones.

The monitor is C (engine/monitor_register.c has the theory). What it can't decide: a value that was
observed (read, or replaced by a compare-and-set) and has two writers, the initial value counting as
written; failed compare-and-sets, where no simple linearization shows that they could fail and no
simple proof that they could not.

Violations, and the rows that prove them, in order:

- ``fresh``: who observed a value that no operation wrote
- ``future``: who observed a value; its writer, called later
- ``replaced``: two compare-and-sets that replaced one value
- ``cycle``: up to four compare-and-sets, each of which wrote what the next replaced
- ``chain``: an operation; one called after it returned, which the values say came earlier
- ``stale``: operations of two values A and B (or chains of values that compare-and-sets made): one
  of A (left out if A is the initial value) that returned before one of B was called; one of B that
  returned before one of A was called
- ``held``: a compare-and-set that failed; an operation that returned before it (left out if it is
  the initial value) and one called after it that show its expected value was there all the while
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Final, cast

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, CData, lib
from shalott.checkers.history.concurrent import FORM, NOTHING, ConcurrentHistory, Values
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.registers import CasRegister
from shalott.checkers.monitors.monitor import MonitorAnswer
from shalott.checkers.monitors.monitor_columns import (
    DROPPED,
    NO_CODES,
    Bools,
    Encoded,
    Ids,
    Keys,
    Numbering,
    Reason,
    Undecided,
    answered,
    codes,
    dense,
    distinct,
    encoded,
    ids_of_two,
    integers,
)

_CODES: Final = {
    "read": lib.SHL_REGISTER_READ,
    "write": lib.SHL_REGISTER_WRITE,
    "cas": lib.SHL_REGISTER_CAS,
}
MEANS: Final = {name: _CODES[meaning.f] for name, meaning in CasRegister().meanings.items()}
_WHEN_FAILED: Final = {lib.SHL_REGISTER_CAS: lib.SHL_REGISTER_REFUSED}
VIOLATIONS: Final = {
    lib.SHL_REGISTER_FRESH: "fresh",
    lib.SHL_REGISTER_FUTURE: "future",
    lib.SHL_REGISTER_TWICE: "replaced",
    lib.SHL_REGISTER_CYCLE: "cycle",
    lib.SHL_REGISTER_CHAIN: "chain",
    lib.SHL_REGISTER_STALE: "stale",
    lib.SHL_REGISTER_HELD: "held",
}


@dataclass(frozen=True, slots=True)
class RegisterMonitor:
    """A monitor (checkers.linearizability.monitors.base); its options are those of
    models_registers.CasRegister.
    """

    name: ClassVar[str] = "register monitor"

    initial: Hashable = None
    nil: str = "value"
    failed_cas: str = "checked"

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        def check(answer: CData) -> None:
            columns, initial = self.encode(history, budget)
            lib.shl_check_register(columns.columns, initial, budget, answer)

        return answered(self.name, history, budget, check, VIOLATIONS, _REASONS, _why, _what)

    def encode(self, history: ConcurrentHistory, budget: Budget) -> tuple[Encoded, int]:
        """(what the engine reads, the id of the initial value)."""
        f = codes(history, MEANS, _WHEN_FAILED if self.failed_cas == "checked" else NO_CODES)
        argument, result = history.argument, history.result
        if self.nil == "any":
            f[(f == lib.SHL_REGISTER_READ) & (result.kind == NOTHING)] = DROPPED
        if any(MEANS.get(name) == lib.SHL_REGISTER_CAS for name in history.f.names):
            is_cas = (f == lib.SHL_REGISTER_CAS) | (f == lib.SHL_REGISTER_REFUSED)
            if is_cas.any():
                is_read = f == lib.SHL_REGISTER_READ
                return self._encode_with_cas(history, f, is_read, is_cas, budget)
        if self.initial is None or type(self.initial) is int:
            close = ids_of_two(argument, result, f, lib.SHL_REGISTER_READ, self.initial)
            if close is not None:
                a, values, initial = close
                return encoded(history, f, a, None, values, budget), initial
        is_read = f == lib.SHL_REGISTER_READ
        if argument is not result and not (argument.forms or result.forms):
            argument = result = Values(
                np.where(is_read, result.kind, argument.kind),
                np.where(is_read, result.number, argument.number),
            )
        numbers = [argument.number, integers([self.initial])]
        if argument is not result:
            numbers.append(result.number)
        numbering = Numbering.over(numbers)
        keys = numbering.keys(argument)
        if argument is not result:
            keys = np.where(is_read, numbering.keys(result), keys)
        a, values = dense(keys, None, budget)
        initial = _id(keys, a, numbering.key(self.initial))
        return encoded(history, f, a, None, values, budget), initial

    def _encode_with_cas(
        self,
        history: ConcurrentHistory,
        f: npt.NDArray[np.uint8],
        is_read: Bools,
        is_cas: Bools,
        budget: Budget,
    ) -> tuple[Encoded, int]:
        """A second column for what a compare-and-set writes; nothing there for the others."""
        n, argument = len(history), history.argument
        _mark_refused(history, f)
        ends, pair = _pairs(argument, is_cas)
        others = integers([self.initial, *ends])
        numbering = Numbering.over([argument.number, history.result.number, others])
        keys = np.zeros(2 * n, dtype=np.int64)
        keys[:n] = np.where(is_read, numbering.keys(history.result, is_read), 0)
        is_write = f == lib.SHL_REGISTER_WRITE
        keys[:n] = np.where(is_write, numbering.keys(argument, is_write), keys[:n])
        both = numbering.keys_of(ends).reshape(-1, 2)[pair]
        keys[:n][is_cas], keys[n:][is_cas] = both[:, 0], both[:, 1]
        present = np.concatenate([f != DROPPED, is_cas])
        ids, values = dense(keys, present, budget)
        initial = _id(keys[present], ids[present], numbering.key(self.initial))
        return encoded(history, f, ids[:n].copy(), ids[n:].copy(), values, budget), initial


def _mark_refused(history: ConcurrentHistory, f: npt.NDArray[np.uint8]) -> None:
    """A compare-and-set that completed with false was refused as well."""
    said_no = [at for at, form in enumerate(history.result.forms) if form is False]
    for at in said_no:
        no = (history.result.kind == FORM) & (history.result.number == at)
        f[no & (f == lib.SHL_REGISTER_CAS)] = lib.SHL_REGISTER_REFUSED


def _id(keys: Keys, ids: Ids, key: int) -> int:
    if not len(keys):
        return int(lib.SHL_NONE)
    at = int(np.argmax(keys == key))
    return int(ids[at]) if keys[at] == key else int(lib.SHL_NONE)


def _pairs(argument: Values, rows: Bools) -> tuple[list[Hashable], npt.NDArray[np.int64]]:
    """(the distinct from, to, from, to...; which pair each compare-and-set has)."""
    if (argument.kind[rows] != FORM).any():
        raise Undecided("a compare-and-set has no pair of values")
    used, place = distinct(argument.number[rows], len(argument.forms))
    pairs = [argument.forms[number] for number in used.tolist()]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise Undecided(f"a compare-and-set has no pair of values but {value_text(pair)}")
    return list(itertools.chain.from_iterable(cast("list[tuple[Hashable]]", pairs))), place


# --- what is said about it ------------------------------------------------------------------------


Rows = tuple[int, ...]


def _why(history: ConcurrentHistory, violation: int, rows: Rows) -> str:
    if violation == lib.SHL_REGISTER_OPEN:
        return f"the failed {_what(history, rows[0])} is an observation that only a search weighs"
    value = _named(_written(history, rows[1]))
    if rows[0] == rows[1]:
        return f"value {value} is the initial one, was written, and was observed"
    return f"value {value} was written twice and was observed"


def _what(history: ConcurrentHistory, row: int) -> str:
    means = MEANS[history.f.names[history.f.codes[row]]]
    if means == lib.SHL_REGISTER_READ:
        return f"read of {_named(history.result.get(row))}"
    value = history.argument.get(row)
    if means == lib.SHL_REGISTER_WRITE:
        return f"write of {_named(value)}"
    assert isinstance(value, tuple)
    return f"compare-and-set from {_named(value[0])} to {_named(value[1])}"


def _named(value: Hashable) -> str:
    return value_text(value)


def _written(history: ConcurrentHistory, row: int) -> Hashable:
    value = history.argument.get(row)
    is_cas = MEANS[history.f.names[history.f.codes[row]]] == lib.SHL_REGISTER_CAS
    return value[1] if is_cas and isinstance(value, tuple) else value


def _seen(history: ConcurrentHistory, row: int) -> Hashable:
    """What an operation found in the register."""
    if MEANS[history.f.names[history.f.codes[row]]] == lib.SHL_REGISTER_READ:
        return history.result.get(row)
    value = history.argument.get(row)
    return value[0] if isinstance(value, tuple) else value


def _fresh(history: ConcurrentHistory, rows: Rows) -> str:
    value = _named(_seen(history, rows[0]))
    return f"the {_what(history, rows[0])} found {value}, which no operation wrote"


def _replaced(history: ConcurrentHistory, rows: Rows) -> str:
    one, other = _what(history, rows[0]), _what(history, rows[1])
    value = _named(_seen(history, rows[0]))
    return f"the {one} and the {other} both replaced {value}, which was written once"


def _cycle(history: ConcurrentHistory, rows: Rows) -> str:
    around = ", ".join(f"the {_what(history, row)}" for row in rows)
    return f"each of these replaced what another of them wrote, so none was first: {around}"


def _stale(history: ConcurrentHistory, rows: Rows) -> str:
    *_, second_row, before_row, after_row = rows
    after, before = _what(history, after_row), _what(history, before_row)
    again = f"the {after} was called after the {before} had returned"
    if len(rows) == 3:
        return f"{again}, although the initial value was never written again"
    first, second = _what(history, rows[0]), _what(history, second_row)
    value = _named(_left(history, rows[0]))
    return (
        f"{again}, and the {second} was called after the {first} had returned:"
        f" {value} was in the register before and after another value but was written once"
    )


def _left(history: ConcurrentHistory, row: int) -> Hashable:
    """What was in the register after an operation."""
    is_read = MEANS[history.f.names[history.f.codes[row]]] == lib.SHL_REGISTER_READ
    return history.result.get(row) if is_read else _written(history, row)


def _held(history: ConcurrentHistory, rows: Rows) -> str:
    value = history.argument.get(rows[0])
    expected = _named(value[0] if isinstance(value, tuple) else value)
    since = "initially" if len(rows) == 2 else f"before (see the {_what(history, rows[1])})"
    return (
        f"the {_what(history, rows[0])} failed although the register held {expected} {since}"
        f" and still did afterwards (see the {_what(history, rows[-1])})"
    )


_REASONS: Final[dict[str, Reason]] = {
    "fresh": _fresh,
    "future": "the {0} returned before the {1} was called",
    "replaced": _replaced,
    "cycle": _cycle,
    "chain": "the {1} was called after the {0} had returned, although the compare-and-sets say that"
    " what it found came earlier",
    "stale": _stale,
    "held": _held,
}
