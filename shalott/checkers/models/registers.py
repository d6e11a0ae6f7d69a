"""Sequential specifications of registers: plain, with compare-and-set, several at once, key-value.

A read of nil: Porcupine's models take nil for a value like any other; Knossos takes it for "did not
look" and lets it match anything. ``nil`` says which, "value" or "any".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from shalott.checkers.history.column_values import exact
from shalott.checkers.history.concurrent import FAILED, UNKNOWN, Operation
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.model import Meaning, Meanings, aliases, one_of

READ = Meaning("read", result=True, pure=True)
WRITE = Meaning("write", argument=True)


@dataclass(frozen=True, slots=True)
class Register:
    """Holds one value: write(v), read -> v."""

    name: ClassVar[str] = "register"
    meanings: ClassVar[Meanings] = aliases(("read get", READ), ("write put set", WRITE))

    initial: Hashable = None
    nil: str = "value"  # a read of nil: a "value" like any other, or "any" will do

    def __post_init__(self) -> None:
        one_of("nil", self.nil, "value", "any")

    @property
    def init(self) -> Hashable:
        return (exact(self.initial),)

    def step(self, state: Hashable, op: Operation) -> Hashable:
        return _step(state, op, self.nil)


@dataclass(frozen=True, slots=True)
class CasRegister:
    """A register with cas((from, to)), which writes ``to`` if the value is ``from``, or fails."""

    name: ClassVar[str] = "cas-register"

    initial: Hashable = None
    nil: str = "value"
    failed_cas: str = "checked"  # the value must have differed; or "ignored", as Knossos does

    def __post_init__(self) -> None:
        one_of("nil", self.nil, "value", "any")
        one_of("failed_cas", self.failed_cas, "checked", "ignored")

    @property
    def meanings(self) -> Meanings:
        return _CAS_CHECKED if self.failed_cas == "checked" else _CAS_IGNORED

    @property
    def init(self) -> Hashable:
        return (exact(self.initial),)

    def step(self, state: Hashable, op: Operation) -> Hashable:
        f, argument, result, _ = op
        if f != "cas":
            return _step(state, op, self.nil)
        if not isinstance(argument, tuple) or len(argument) != 2:
            raise ValueError(f"a cas needs a pair [from to], not {value_text(argument)}")
        before, after = argument
        has_failed = result is FAILED or result is False
        if state != (exact(before),):
            return state if has_failed else None
        return None if has_failed else (exact(after),)

    def is_pure(self, op: Operation) -> bool:
        return op.f == "cas" and (
            op.result is False
            or (isinstance(op.argument, tuple) and exact(op.argument[0]) == exact(op.argument[-1]))
        )


def _cas_meanings(failed: bool) -> Meanings:
    cas = Meaning("cas", argument=True, result=True, failed=failed)
    return aliases(("read get", READ), ("write put set", WRITE), ("cas compare-and-set", cas))


_CAS_CHECKED, _CAS_IGNORED = _cas_meanings(True), _cas_meanings(False)


def _step(state: Hashable, op: Operation, nil: str) -> Hashable:
    f, argument, result, _ = op
    if f == "write":
        return (exact(argument),)
    if result is UNKNOWN or (result is None and nil == "any"):
        return state
    return state if state == (exact(result),) else None


@dataclass(frozen=True, slots=True)
class KeyValue:
    """The value of one key: put(v), append(v), get -> v. Each key is an object of its own."""

    name: ClassVar[str] = "key-value"
    meanings: ClassVar[Meanings] = aliases(
        ("get read", Meaning("get", result=True, pure=True)),
        ("put write set", Meaning("put", argument=True)),
        ("append", Meaning("append", argument=True)),
    )

    initial: Hashable = ""

    @property
    def init(self) -> Hashable:
        return (exact(self.initial),)

    def step(self, state: Hashable, op: Operation) -> Hashable:
        if op.f == "put":
            return (exact(op.argument),)
        if op.f == "append":
            return (_appended(state, op.argument),)
        return state if op.result is UNKNOWN or state == (exact(op.result),) else None


def _appended(state: Hashable, value: Hashable) -> Hashable:
    assert isinstance(state, tuple)
    (before,) = state
    if before is None:
        before = "" if isinstance(value, str) else ()
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if isinstance(before, tuple):
        return (*before, value)
    raise ValueError(f"can't append {value_text(value)} to {value_text(before)}")


@dataclass(frozen=True, slots=True)
class MultiRegister:
    """Several registers, written and read at one instant.

    read: a result of pairs (name, value). write: an argument of pairs. txn: a tuple of micro
    operations ("read" or "r" | "write" or "w", name, value), done one after the other. The value
    of a read that did not look is nil, if ``nil`` is "any". A txn whose result tells of other
    micro operations than its argument asked for is one that no register allows.
    """

    name: ClassVar[str] = "multi-register"
    meanings: ClassVar[Meanings] = aliases(
        ("read", READ),
        ("write", WRITE),
        ("txn", Meaning("txn", argument=True, result=True, settles=True)),
    )

    initial: Hashable = None  # of every register
    nil: str = "value"

    def __post_init__(self) -> None:
        one_of("nil", self.nil, "value", "any")

    @property
    def init(self) -> Hashable:
        return frozenset[Hashable]()

    def step(self, state: Hashable, op: Operation) -> Hashable:
        assert isinstance(state, frozenset)
        values = dict(state)
        if op.f == "txn" and not _did_what_was_asked(op):
            return None
        for word, name, value in _micro_operations(op):
            if word in ("write", "w"):
                values[name] = exact(value)
            elif op.result is UNKNOWN or (value is None and self.nil == "any"):
                continue
            elif values.get(name, exact(self.initial)) != exact(value):
                return None
        return frozenset(values.items())

    def is_pure(self, op: Operation) -> bool:
        return op.f == "txn" and all(word in ("read", "r") for word, _, _ in _micro_operations(op))


def _micro_operations(op: Operation) -> Iterable[tuple[str, Hashable, Hashable]]:
    known = op.result is not UNKNOWN and op.result is not None
    if op.f == "txn":
        return _triples(op.result if known else op.argument)
    pairs = op.argument if op.f == "write" else op.result if known else ()
    if not isinstance(pairs, tuple | frozenset) or not all(_is_tuple(pair, 2) for pair in pairs):
        raise ValueError(
            f"a {op.f} of several registers needs pairs [name value], not {value_text(pairs)}"
        )
    return [(op.f, name, value) for name, value in pairs]


def _triples(done: Hashable) -> Sequence[tuple[str, Hashable, Hashable]]:
    if not isinstance(done, tuple) or not all(_is_tuple(micro, 3) for micro in done):
        raise ValueError(f"a txn needs triples [f name value], not {value_text(done)}")
    for micro in done:
        if micro[0] not in ("read", "r", "write", "w"):
            raise ValueError(f"a txn reads and writes: {value_text(micro[0])} is neither")
    return done


def _did_what_was_asked(op: Operation) -> bool:
    """A result that changed a read into a write would say more than a crash could have done."""
    asked, done = op.argument, op.result
    if done is UNKNOWN or done is None or asked is None:
        return True
    return [_asked(micro) for micro in _triples(asked)] == [
        _asked(micro) for micro in _triples(done)
    ]


def _asked(micro: tuple[str, Hashable, Hashable]) -> tuple[Hashable, ...]:
    word, name, value = micro
    return ("r", name) if word in ("read", "r") else ("w", name, exact(value))


def _is_tuple(value: Hashable, length: int) -> bool:
    return isinstance(value, tuple) and len(value) == length
