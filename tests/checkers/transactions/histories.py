"""Histories of transactions as tests have them, and as text that Elle and ``shalott check`` read.

A transaction is a sequence of micro-operations: ("r", key, what it saw), ("append", key, element)
or ("w", key, value). A list's read saw a tuple, a register's a value, or None at first. What an
``info`` transaction read is not known, whatever stands there. ``call`` and ``ret`` are moments;
an ``info`` transaction has no ``ret``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Mop = tuple[str, str, Hashable]
Semantics = Literal["list-append", "rw-register"]
SEMANTICS: tuple[Semantics, ...] = ("list-append", "rw-register")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction, as its client knows it."""

    process: int
    mops: tuple[Mop, ...]
    call: int
    ret: int | None
    type: Literal["ok", "fail", "info"] = "ok"

    @property
    def writes(self) -> dict[str, list[Hashable]]:
        """What it wrote, by key, in its order."""
        found: dict[str, list[Hashable]] = {}
        for f, key, value in self.mops:
            if f != "r":
                found.setdefault(key, []).append(value)
        return found


History = Sequence[Transaction]


def in_order(*transactions: tuple[Mop, ...], processes: Sequence[int] = ()) -> list[Transaction]:
    """Each returns before the next is called; by default each has a process of its own."""
    of = processes or range(len(transactions))
    return [
        Transaction(process, mops, 2 * at, 2 * at + 1)
        for at, (process, mops) in enumerate(zip(of, transactions, strict=True))
    ]


def at_once(*transactions: tuple[Mop, ...]) -> list[Transaction]:
    """All are called before the first returns."""
    count = len(transactions)
    return [Transaction(at, mops, at, count + at) for at, mops in enumerate(transactions)]


def edn(history: History) -> str:
    """As Jepsen writes it, a line an event."""
    lines = []
    for index, (at, kind, transaction) in enumerate(sorted(_events(history), key=_when)):
        shown = " ".join(_mop(mop, kind) for mop in transaction.mops)
        lines.append(
            f"{{:index {index}, :time {1000 * at}, :type :{kind}, :process {transaction.process},"
            f" :f :txn, :value [{shown}]}}"
        )
    return "\n".join(lines) + "\n"


def _when(event: tuple[int, str, Transaction]) -> tuple[int, bool]:
    return event[0], event[1] != "invoke"


def _events(history: History) -> Iterator[tuple[int, str, Transaction]]:
    end = 1 + max((max(each.call, each.ret or 0) for each in history), default=0)
    for transaction in history:
        yield transaction.call, "invoke", transaction
        if transaction.ret is not None:
            yield transaction.ret, transaction.type, transaction
        else:  # a client gives up some time: nothing can be told from when
            end += 1
            yield end, "info", transaction


def _mop(mop: Mop, kind: str) -> str:
    f, key, value = mop
    if f == "r" and kind != "ok":
        return f"[:r {key} nil]"
    return f"[:{f} {key} {_value(value)}]"


def _value(value: Hashable) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(map(_value, value)) + "]"
    return "nil" if value is None else str(value)
