"""Chooses the operations that show why a history is not linearizable: few, and yet a proof.

Tried in this order, each under a budget; the first that is proved (by explain_search) is taken:
the whole prefix, if it is short; the last part of it, begun in any state that the object can have
(for objects with few states); the operations of a few values (explain_projection), at first those
of the witnesses, then more and more; the last part, begun in the states that a search of all that
was before leaves. Then all that can be left out without losing the proof is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from shalott.checkers.history.column_values import exact
from shalott.checkers.history.concurrent import (
    FAIL,
    FAILED,
    INFO,
    NEVER,
    UNKNOWN,
    ConcurrentHistory,
    Operation,
)
from shalott.checkers.linearizability.explanation import operations_of
from shalott.checkers.linearizability.order_search import (
    Found,
    ModelFailed,
    Part,
    State,
    StepOf,
    is_pure,
    search,
    states_of,
    step_of,
)
from shalott.checkers.models import Model, OneOf, meanings_of, own_name

WHOLE_MAX: Final = 24  # operations: a prefix this short is shown whole, if nothing is better
PARTS_MAX: Final = 64  # of a window
RECENT_MAX: Final = 512  # operations at the end of a long prefix whose values are all looked at
STATES_MAX: Final = 64  # that an object is tried from when nothing is known
_TRIES: Final = 10_000  # transitions of one search


@dataclass(frozen=True, slots=True)
class Window:
    parts: tuple[Part, ...]
    starts: tuple[State, ...]  # the states in which it may begin
    found: Found
    model: Model  # the object's, or what remains of it
    left_out: int = 0  # crashed operations that are not shown because they help no order
    is_proof: bool = True
    is_minimal: bool = False


def parts_of(history: ConcurrentHistory, model: Model) -> list[Part]:
    """The operations that count, as the model sees them."""
    meanings, by_process = meanings_of(model), bool(getattr(model, "by_process", False))
    parts = []
    kinds, calls, rets = history.type.tolist(), history.call.tolist(), history.ret.tolist()
    for row, seen in enumerate(operations_of(history)):
        meaning = None if meanings is None else meanings.get(seen.f)
        if kinds[row] == FAIL and not (meaning is not None and meaning.failed):
            continue
        operation = Operation(
            seen.f if meaning is None else meaning.f,
            seen.argument if meaning is None or meaning.argument else None,
            seen.result if meaning is None or meaning.result or meaning.failed else None,
            seen.process if by_process else -1,
        )
        if kinds[row] == INFO and meaning is not None and not meaning.result:
            operation = operation._replace(result=UNKNOWN)
        pure = is_pure(model, operation)
        if not (pure and kinds[row] == INFO):  # a crashed read says nothing
            parts.append(Part(row, calls[row], rets[row], operation, pure))
    return parts


@dataclass(slots=True)
class Chooser:
    """Under way: what is left of the budget."""

    model: Model
    stuck: int  # the row whose return ends the prefix: no proof is without it
    # False: of a long prefix only the end is here, and all that is about the values of the
    # witnesses and of the last RECENT_MAX operations that returned.
    is_complete: bool
    kinds: Sequence[Operation] | None  # of the whole prefix; None: too many
    out_of_time: Callable[[], bool]
    reduces: bool = True

    def find(self, parts: Sequence[Part], witness: Sequence[int]) -> Window | None:
        """The smallest of the first two, or the first of the others."""
        first = [self.try_whole(parts, WHOLE_MAX), self.last_part(parts)]
        proofs = [self.reduced_if_can_be(window) for window in first if window is not None]
        if proofs:
            return min(proofs, key=_size)
        window = self.projection(parts, witness)
        if window is None and not self.out_of_time():
            window = self.exact(parts)
        if window is not None:
            return self.reduced_if_can_be(window)
        return self.illustration(parts, witness) if witness else None

    def ask(
        self, parts: Sequence[Part], starts: Sequence[State], model: Model, step: StepOf
    ) -> Window | None:
        """The window of these parts if it is a proof."""
        found = search(parts, starts, step, _TRIES)
        if found.stuck is None:
            return None
        return Window(tuple(parts), tuple(starts), found, model)

    def try_whole(self, parts: Sequence[Part], most: int) -> Window | None:
        if len(parts) > most or not self.is_complete:
            return None
        return self.ask(parts, [self.model.init], self.model, step_of(self.model))

    def last_part(self, parts: Sequence[Part]) -> Window | None:
        """The shortest last part that no state explains: longer and longer ones are tried."""
        try:
            states = None if self.kinds is None else states_of(self.model, self.kinds, STATES_MAX)
        except ModelFailed:  # in a state that nothing may ever have led to
            return None
        if states is None:
            return None
        step = step_of(self.model)
        size = 1
        while not self.out_of_time():
            chosen = _from(parts, size)
            if sum(part.ret != NEVER for part in chosen) > PARTS_MAX:
                return None
            window = self.ask(chosen, states, self.model, step)
            if window is not None:
                return window
            if size >= len(parts):
                return None
            size += max(1, size // 3)
        return None

    def projection(self, parts: Sequence[Part], witness: Sequence[int]) -> Window | None:
        """The operations of few values: the witnesses', then those of operations ever earlier."""
        operations = [part.operation for part in parts]
        units = units_of(self.model, operations)
        if units is None:
            return None
        seeds = [
            at for at, part in enumerate(parts) if part.row in witness or part.row == self.stuck
        ]
        wanted = {unit for at in seeds for unit in units[at]}
        size, before = 1, -1
        while not self.out_of_time():
            kept = with_origins(wanted, operations, self.model)
            if not self.is_complete and kept != wanted:
                return None  # of the origins not all is here
            chosen = [
                part
                for part, about in zip(parts, units, strict=True)
                if kept.issuperset(about) and (about or self.is_needed(part))
            ]
            if len(chosen) > 4 * PARTS_MAX:
                return None
            if len(chosen) != before:
                before = len(chosen)
                window = self.of_part(chosen)
                if window is not None:
                    return window
            if size >= (2 * len(parts) if self.is_complete else RECENT_MAX // 2):
                return None
            size *= 2
            rows = {part.row for part in _from(parts, size) if part.ret != NEVER}
            wanted |= {unit for part, about in zip(parts, units, strict=True)
                       if part.row in rows for unit in about}  # fmt: skip
        return None

    def illustration(self, parts: Sequence[Part], witness: Sequence[int]) -> Window | None:
        """The witnesses' values as if no crash could help: no proof, for one about any may have.

        That they do not may take counting all that crashed, which no small window shows. None if
        operations about other values may have made these.
        """
        operations = [part.operation for part in parts]
        units = units_of(self.model, operations)
        if units is None:
            return None
        pairs = list(zip(parts, units, strict=True))
        wanted = {unit for part, about in pairs if part.row in witness for unit in about}
        if with_origins(wanted, operations, self.model) != wanted:
            return None
        chosen = [
            part
            for part, about in pairs
            if (part.ret != NEVER or about)
            and wanted.issuperset(about)
            and (about or part.row == self.stuck or part.row in witness)
        ]
        window = self.of_part(chosen)
        crashed = sum(part.ret == NEVER and not part.is_pure for part in parts)
        return None if window is None else replace(window, is_proof=False, left_out=crashed)

    def is_needed(self, part: Part) -> bool:
        """Of the operations about no value: the stuck one, and what may have been about any."""
        return part.row == self.stuck or (not part.is_pure and part.ret == NEVER)

    def of_part(self, chosen: Sequence[Part]) -> Window | None:
        model = self.model_of(chosen)
        return self.ask(chosen, [model.init], model, step_of(model))

    def model_of(self, chosen: Sequence[Part]) -> Model:
        """The object's model, if only these operations are left of some values'."""
        if own_name(self.model) != "log":
            return self.model
        return log_part([part.operation for part in chosen])

    def exact(self, parts: Sequence[Part]) -> Window | None:
        """The whole prefix, however long, if the search can do it."""
        if len(parts) > 40 * PARTS_MAX or not self.is_complete:
            return None
        step = step_of(self.model)
        found = search(parts, [self.model.init], step, 20 * _TRIES)
        if found.stuck is None:
            return None
        return Window(tuple(parts), (self.model.init,), found, self.model)

    # --- leaving out -----------------------------------------------------------------------------

    def reduced_if_can_be(self, window: Window) -> Window:
        """As it is if its model fails without some of the operations."""
        if not self.reduces:
            return window
        try:
            return self.reduced(window)
        except ModelFailed:
            return window

    def reduced(self, window: Window) -> Window:
        """Without what the proof does not need."""
        window = self.without_helpless(window)
        if len(window.parts) > 4 * PARTS_MAX:
            return window
        step = step_of(window.model)
        if own_name(window.model) == "log" and window.starts == (window.model.init,):
            window = self.of_part(window.parts) or window  # now offsets may be left out
        for smaller in (self.fewer_pure, self.fewer_units):
            window = smaller(window, step)
        # Values that are gone may have made reads removable, and the other way round.
        window = self.without_helpless(self.fewer_pure(window, step))
        return replace(window, is_minimal=not self.out_of_time())

    def attempt(self, window: Window, kept: Sequence[Part], step: StepOf) -> Window | None:
        if all(part.row != self.stuck for part in kept):
            return None
        model = window.model
        if isinstance(model, LogPart):
            model = self.model_of(kept)
            step = step_of(model)
        found = search(kept, window.starts, step, _TRIES)
        if found.stuck is None:
            return None
        return replace(window, parts=tuple(kept), found=found, model=model)

    def fewer_pure(self, window: Window, step: StepOf) -> Window:
        for part in window.parts:
            if self.out_of_time():
                return window
            if part.is_pure:
                kept = [each for each in window.parts if each is not part]
                window = self.attempt(window, kept, step) or window
        return window

    def fewer_units(self, window: Window, step: StepOf) -> Window:
        operations = [part.operation for part in window.parts]
        units = units_of(window.model, operations)
        if units is None or window.starts != (window.model.init,):
            return window
        for unit in dict.fromkeys(unit for about in units for unit in about):
            if self.out_of_time():
                return window
            here = [part.operation for part in window.parts]
            abouts = units_of(window.model, here)
            assert abouts is not None
            rest = {each for about in abouts for each in about} - {unit}
            rest = {each for each in rest if unit not in with_origins([each], here, window.model)}
            kept = [
                part
                for part, about in zip(window.parts, abouts, strict=True)
                if rest.issuperset(about)
            ]
            if len(kept) < len(window.parts):
                window = self.attempt(window, kept, step) or window
        return window

    def without_helpless(self, window: Window) -> Window:
        """Without the crashed operations of before that no longest order uses."""
        used = {at for order in window.found.orders for at, _ in order.steps}
        begin = min(part.call for part in window.parts if part.ret != NEVER)
        kept = [
            part
            for at, part in enumerate(window.parts)
            if part.ret != NEVER or at in used or part.call >= begin
        ]
        left_out = len(window.parts) - len(kept)
        if not left_out:
            return window
        found = search(kept, window.starts, step_of(window.model), _TRIES)
        if found.stuck is None:
            return window
        return replace(window, parts=tuple(kept), found=found, left_out=window.left_out + left_out)


def _size(window: Window) -> int:
    """How much there is to read. To begin anywhere costs as much as an operation."""
    return sum(part.ret != NEVER for part in window.parts) + (len(window.starts) > 1)


def _from(parts: Sequence[Part], size: int) -> list[Part]:
    """The last ``size`` operations to return, and all that were under way with them or later.

    What was called before the first of them returned may have taken effect before the window.
    """
    rets = np.sort(np.array([part.ret for part in parts if part.ret != NEVER], dtype=np.int64))
    if not len(rets):
        return list(parts)
    if size >= len(rets):
        return list(parts)
    earlier = int(rets[len(rets) - size - 1])  # all returns up to this one are before the window
    return [replace(part, is_open=part.call < earlier) for part in parts if part.ret > earlier]


# What may be left out of a history that is not linearizable, and leave a proof of it.
#
# Not any operation: without the write of 3 a read of 3 has no explanation, and the whole may yet
# be linearizable. But what is about one value may be, in the objects below, *as a whole*: if the
# operations of a linearizable history have an order, the same order without all the operations of
# some values is legal too. (So an illegal remainder proves the whole to be illegal.)
# - queues: a value's enqueues and dequeues. Crashed dequeues, which may have taken any, stay.
# - sets without reads of the whole: an element's operations.
# - registers: a value's writes and reads, and compare-and-sets from or to it, provided that no
#   value that stays was made from it (by a compare-and-set). So values are kept with their
#   origins.
# - logs: an offset's append and reads. The rest has gaps, which ``LogPart`` allows.
#
# Pure operations (reads) may be left out of any object's history one by one.

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
