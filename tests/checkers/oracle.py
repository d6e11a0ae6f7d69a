"""Linearizability by its definition, for small histories: every order, nothing clever.

Herlihy & Wing 1990: a history is linearizable if its operations can be put into one order that the
model accepts and in which an operation that returned before another was called comes first. One
that crashed may stand anywhere after its call, or nowhere. One that failed stands nowhere, unless
the model says that its failure is an observation.

The only shortcut: a set of operations that led to a state is not continued from twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from shalott.checkers.history.concurrent import FAILED, UNKNOWN, Operation, Row
from shalott.checkers.models import Model, OneOf, meanings_of

INFINITE = float("inf")


def is_linearizable(rows: Sequence[Row], model: Model) -> bool:
    """Whether some order of ``rows`` (of one object) explains what was seen."""
    operations = [(row, _operation(row, model)) for row in rows if _counts(row, model)]
    tried: set[tuple[frozenset[int], Hashable]] = set()

    def explains(left: frozenset[int], state: Hashable) -> bool:
        if all(_returned(operations[i][0]) == INFINITE for i in left):
            return True
        if (left, state) in tried:
            return False
        tried.add((left, state))
        soonest = min(_returned(operations[i][0]) for i in left)
        return any(
            explains(left - {i}, after)
            for i in left
            if operations[i][0].call < soonest  # nothing that is left returned before its call
            for after in _after(model, state, operations[i][1])
        )

    return explains(frozenset(range(len(operations))), model.init)


def are_linearizable(rows: Sequence[Row], model: Model) -> bool:
    """The same for several objects: each on its own (Herlihy & Wing's locality)."""
    keys = {row.key for row in rows}
    return all(is_linearizable([row for row in rows if row.key == key], model) for key in keys)


def _returned(row: Row) -> float:
    return INFINITE if row.ret is None or row.type == "info" else row.ret


def _counts(row: Row, model: Model) -> bool:
    if row.type != "fail":
        return True
    meanings = meanings_of(model)
    return meanings is not None and meanings[row.f].failed


def _operation(row: Row, model: Model) -> Operation:
    meanings = meanings_of(model)
    result: Hashable = row.result
    if row.type == "fail":
        result = FAILED
    elif row.ret is None or row.type == "info":
        result = UNKNOWN
    f = row.f if meanings is None else meanings[row.f].f
    return Operation(f, row.argument, result, row.process)


def _after(model: Model, state: Hashable, operation: Operation) -> tuple[Any, ...]:
    answer = model.step(state, operation)
    if answer is None:
        return ()
    return answer.states if isinstance(answer, OneOf) else (answer,)
