"""What may be left out of a history that is not linearizable, and leave a proof of it.

Not any operation: without the write of 3 a read of 3 has no explanation, and the whole may yet be
linearizable. But what is about one value may be, in the objects below, *as a whole*: if the
operations of a linearizable history have an order, the same order without all the operations of
some values is legal too. (So an illegal remainder proves the whole to be illegal.)

- queues: a value's enqueues and dequeues. Crashed dequeues, which may have taken any, stay.
- sets without reads of the whole: an element's operations.
- registers: a value's writes and reads, and compare-and-sets from or to it, provided that no value
  that stays was made from it (by a compare-and-set). So values are kept with their origins.
- logs: an offset's append and reads. The rest has gaps, which ``LogPart`` allows.

Pure operations (reads) may be left out of any object's history one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from shalott.checkers.history.concurrent import FAILED, UNKNOWN, Operation
from shalott.checkers.history.exact import exact
from shalott.checkers.models import Model, OneOf, own_name

Unit = Hashable

QUEUES: Final = ("fifo-queue", "unordered-queue", "stack", "priority-queue")
REGISTERS: Final = ("register", "cas-register")


def units_of(model: Model, operations: Sequence[Operation]) -> list[tuple[Unit, ...]] | None:
    """The values that each operation is about; None if this model has no such things."""
    name = own_name(model)
    if name in QUEUES:
        return [_of_queue(each) for each in operations]
    if name in REGISTERS:
        return [_of_register(each) for each in operations]
    if name == "set" and not any(each.f == "read" for each in operations):
        return [(exact(each.argument),) for each in operations]
    if name == "log":
        places = log_places(operations)
        return [_of_log(each, places) for each in operations]
    return None


def _of_queue(operation: Operation) -> tuple[Unit, ...]:
    if operation.f in ("enqueue", "push"):
        return (exact(operation.argument),)
    known = operation.result is not None and operation.result is not UNKNOWN
    return (exact(operation.result),) if known else ()


def _of_register(operation: Operation) -> tuple[Unit, ...]:
    if operation.f == "cas":
        if operation.result is FAILED or operation.result is False:
            return ()
        assert isinstance(operation.argument, tuple)
        return tuple(dict.fromkeys(exact(value) for value in operation.argument))
    return (exact(operation.result if operation.f == "read" else operation.argument),)


def _of_log(operation: Operation, places: dict[Hashable, tuple[int, ...]]) -> tuple[Unit, ...]:
    if operation.f == "append":
        known = operation.result is not None and operation.result is not UNKNOWN
        return (operation.result,) if known else places.get(exact(operation.argument), ("nowhere",))
    if operation.f == "read" and operation.result is not None:
        return (operation.argument,)
    return ()


def with_origins(
    wanted: Iterable[Unit], operations: Sequence[Operation], model: Model
) -> set[Unit]:
    """``wanted``, and for registers the values that they were made from."""
    kept = set(wanted)
    if own_name(model) != "cas-register":
        return kept
    made_from: dict[Unit, set[Unit]] = {}
    for each in operations:
        if each.f == "cas" and each.result is not FAILED and each.result is not False:
            assert isinstance(each.argument, tuple)
            before, after = (exact(value) for value in each.argument)
            made_from.setdefault(after, set()).add(before)
    stack = list(kept)
    while stack:
        for origin in made_from.get(stack.pop(), ()):
            if origin not in kept:
                kept.add(origin)
                stack.append(origin)
    return kept


def log_places(operations: Iterable[Operation]) -> dict[Hashable, tuple[int, ...]]:
    """The offsets at which each value was seen or said to be."""
    places: dict[Hashable, tuple[int, ...]] = {}
    for each in operations:
        if each.f == "append":
            value, offset = each.argument, each.result
        elif each.f == "read" and each.result is not None:
            value, offset = each.result, each.argument
        else:
            continue
        if isinstance(offset, int) and not isinstance(offset, bool):
            known = places.get(exact(value), ())
            if offset not in known:
                places[exact(value)] = tuple(sorted((*known, offset)))
    return places


@dataclass(frozen=True, slots=True)
class LogPart:
    """A log of which some offsets are looked at. The state: (offset, value) pairs, ascending.

    ``offsets`` are those that an append or a read of the part proves to be filled; they are filled
    in order. ``places`` says where a value may go whose append does not say it.
    """

    name: ClassVar[str] = "log"
    init: ClassVar[Hashable] = ()

    offsets: tuple[int, ...]
    places: tuple[tuple[Hashable, tuple[int, ...]], ...]

    def step(self, state: Hashable, op: Operation) -> Hashable | OneOf:
        assert isinstance(state, tuple)
        end = state[-1][0] + 1 if state else 0
        if op.f == "append":
            return self._append(state, op)
        if op.f == "tail":
            if not isinstance(op.result, int):
                return None
            filled = sum(offset < op.result for offset, _ in state)
            wanted = sum(offset < op.result for offset in self.offsets)
            return state if end <= op.result and filled == wanted else None
        if not isinstance(op.argument, int):
            return None
        if op.result is None:
            return state if end <= op.argument else None
        return state if (op.argument, exact(op.result)) in state else None

    def _append(self, state: tuple[tuple[int, Hashable], ...], op: Operation) -> Hashable | OneOf:
        value = exact(op.argument)
        next_one = self.offsets[len(state)] if len(state) < len(self.offsets) else None
        if op.result is not None and op.result is not UNKNOWN:
            return (*state, (next_one, value)) if next_one == op.result else None
        if next_one in dict(self.places).get(value, ()):
            return OneOf((state, (*state, (next_one, value))))
        return state  # it went to an offset that is not looked at


def log_part(operations: Sequence[Operation]) -> LogPart:
    """The model of a part of a log's history."""
    places = log_places(operations)
    offsets = sorted({offset for each in places.values() for offset in each})
    return LogPart(tuple(offsets), tuple(places.items()))
