"""A model as the general search sees it: operations and states are small integers.

Operations that a model can't tell apart are one *kind* (engine/encode.c numbers them); states are
numbered as they are met. The engine keeps the table of transitions and asks for each cell once:
that question is the only time a model runs. Everything here may be used for one history after the
other; what was asked for one is known for the next.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import INT32S, INT64S, UINT8S, Budget, CData, ffi, lib
from shalott.checkers.history.column_values import Words, exact_all
from shalott.checkers.history.concurrent import ConcurrentHistory, Operation, Values
from shalott.checkers.models import Meaning, Model, OneOf, meanings_of, model_name, own_name
from shalott.core.errors import UsageError

Ints32 = npt.NDArray[np.int32]

STATE_BYTES: Final = 112  # of a state besides itself: its number, its places in a dict and a list
KIND_BYTES: Final = 400  # of an operation as the model sees it
PLACE_BYTES: Final = 16  # of one that is made when it is asked about
KEPT_NAMES: Final = 64  # tuples of f names whose meaning is kept

ROWS, ENCODED, OPERATIONS = (
    ffi.typeof(f"shl_{name} *") for name in ("rows", "encoded", "operations")
)
ILLEGAL, BRANCHES = int(lib.SHL_ILLEGAL), int(lib.SHL_BRANCHES)
borrow = ffi.from_buffer


class Encoded(NamedTuple):
    """A history's operations, those of one key together; ranks are dense in each key."""

    out: CData  # a shl_encoded *: where the engine wrote them
    memory: Ints32  # that it wrote to: columns of ``room`` each, and more
    room: int
    total: int  # operations of all keys; some may have been left out

    @property
    def bytes(self) -> int:
        return self.memory.nbytes

    def operations(self, key: int) -> CData:
        """A ``shl_operations *`` of one key; it borrows this object's memory."""
        operations = ffi.new(OPERATIONS)
        lib.shl_operations_of(self.out, key, operations)
        return operations

    def row(self, key: int, at: int) -> int:
        return int(self.out.row[self.out.start[key] + at])

    def row_of_kind(self, kind: int) -> int:
        """The first row that is of a kind."""
        kinds = self._column(3, 0, self.total)
        return int(self.out.row[int(np.flatnonzero(kinds == kind)[0])])

    def columns(self, key: int) -> tuple[Ints32, Ints32, Ints32]:
        """The row, call and ret of each of a key's operations."""
        begin, end = self.out.start[key], self.out.start[key + 1]
        row, call, ret = (self._column(which, begin, end) for which in range(3))
        return row, call, ret

    def _column(self, which: int, begin: int, end: int) -> Ints32:
        return self.memory[which * self.room + begin : which * self.room + end]


class Transitions:
    """One model's table, and what its numbers stand for. ``close`` frees it.

    ``budget`` is charged with all that it holds, Python's states included; it must live as long.
    """

    def __init__(self, model: Model, budget: Budget, name: str = "") -> None:
        self.model = model
        self.name = name  # under which it is kept for the next history; "": it is not
        self.failure: tuple[int, BaseException] | None = (
            None  # the kind asked about, what it raised
        )
        self._charged = 0
        self.forms: dict[Hashable, int] = {}
        self._meanings = meanings_of(model)
        self._is_pure: Callable[[Operation], bool] | None = getattr(model, "is_pure", None)
        self._by_process = bool(getattr(model, "by_process", False))
        self._by_name: dict[str, tuple[int, int]] = {}
        self._means: dict[str, int] = {}
        self._meant_by: dict[tuple[str, ...], tuple[npt.NDArray[np.uint8], Ints32]] = {}
        self.budget = budget
        self._table: CData = ffi.NULL
        self._kinds: CData = lib.shl_kinds_new(budget)
        self._operations: list[Operation | None] = []
        self._described: list[tuple[int, Callable[[int], Operation]]] = []  # from which kind on
        self._states: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}
        self._handle = ffi.new_handle(self)
        if self._kinds == ffi.NULL:
            raise MemoryError
        try:
            self._number(model.init)
        except TypeError as raised:
            raise UsageError(f"model {model_name(model)}: {raised}") from raised

    def close(self) -> None:
        """Frees all that was charged; the handle, too, through which this object holds itself."""
        lib.shl_table_free(self._table, self.budget)
        lib.shl_kinds_free(self._kinds)
        self._table = self._kinds = ffi.NULL
        self._handle = None
        self._operations, self._described = [], []
        self._states, self._numbers = [], {}
        lib.shl_charge(self.budget, -self._charged)
        self._charged = 0

    @property
    def kinds(self) -> int:
        return int(lib.shl_kinds_count(self._kinds))

    @property
    def states(self) -> int:
        return len(self._states)

    @property
    def asked(self) -> int:
        return int(lib.shl_table_asked(self._table)) if self._table else 0

    def pure(self) -> npt.NDArray[np.uint8]:
        """By kind: 1 if it never changes a state. Good until the next history is encoded."""
        memory = ffi.buffer(lib.shl_kinds_pure(self._kinds), self.kinds)
        return np.frombuffer(memory, dtype=np.uint8)

    def repeated(self, encoded: Encoded, budget: Budget) -> str:
        """The f of an operation that changes the state and occurs more than once; "": none does."""
        kind = lib.shl_repeated(self._kinds, encoded.total, encoded.out.kind, budget)
        return "" if kind == lib.SHL_NONE else self.operation(kind).f

    def state(self, number: int) -> Hashable:
        return self._states[number]

    def table(self) -> CData:
        """The ``shl_table *``, with room for every kind so far. No search may run meanwhile."""
        count, pure = self.kinds, lib.shl_kinds_pure(self._kinds)
        if not self._table:
            self._table = lib.shl_table_new(count, pure, lib.shl_ask, self._handle, self.budget)
            self._grown = count
            if not self._table:
                raise MemoryError
        elif count > self._grown:
            if not lib.shl_table_grow(self._table, count, pure, self.budget):
                raise MemoryError
            self._grown = count
        return self._table

    # --- histories ------------------------------------------------------------------------------

    def encode(self, history: ConcurrentHistory, budget: Budget) -> Encoded:
        """Its operations as kinds, each key's together.

        Raises UsageError (an f that the model does not know) and MemoryError.
        """
        n, keys = len(history), max(1, len(history.key.names))
        size = 5 * n + 2 * keys + 1
        if not lib.shl_charge(budget, 4 * size):
            raise MemoryError
        memory = np.empty(max(1, size), dtype=np.int32)
        out = ffi.new(ENCODED)
        known = self.kinds
        rows, alive = self._rows(history, keys)
        refused = lib.shl_encode(rows, self._kinds, borrow(INT32S, memory), out, budget)
        del alive
        if refused:
            raise MemoryError
        if out.fresh_count:
            self._remember(history, known, memory[4 * n : 4 * n + out.fresh_count])
        return Encoded(out, memory, n, out.start[keys])

    def _rows(self, history: ConcurrentHistory, keys: int) -> tuple[CData, list[CData]]:
        rows = ffi.new(ROWS)
        rows.n = len(history)
        reads, means = self._meant(history)
        argument, result = history.argument, history.result
        alive = [
            borrow(INT32S, history.f.codes),
            borrow(UINT8S, reads),
            borrow(INT32S, means),
            borrow(UINT8S, history.type),
            borrow(UINT8S, argument.kind),
            borrow(INT64S, argument.number),
            borrow(UINT8S, result.kind),
            borrow(INT64S, result.number),
            borrow(INT32S, history.call),
            borrow(INT32S, history.ret),
        ]
        rows.f, rows.reads, rows.means, rows.type = alive[:4]
        rows.argument_kind, rows.argument, rows.result_kind, rows.result = alive[4:8]
        rows.call, rows.ret = alive[8:]
        rows.keys = keys
        if keys > 1:
            rows.key = borrowed = borrow(INT32S, history.key.codes)
            alive.append(borrowed)
        if self._by_process:
            rows.process = borrowed = borrow(INT32S, history.process)
            alive.append(borrowed)
        if argument.forms:
            rows.argument_forms = rows.result_forms = numbers = self._forms(argument)
            alive.append(numbers)
        if result.forms and result.forms is not argument.forms:
            rows.result_forms = numbers = self._forms(result)
            alive.append(numbers)
        return rows, alive

    def _forms(self, values: Values) -> CData:
        """A number for each form that is the same in every history, as an ``int32_t[]``."""
        known = self.forms
        forms = values.forms if values.are_exact else exact_all(values.forms)
        numbers: list[int | None] = [*map(known.get, forms)]
        if None in numbers:
            return ffi.new(INT32S, [known.setdefault(form, len(known)) for form in forms])
        return ffi.new(INT32S, numbers)

    def _meant(self, history: ConcurrentHistory) -> tuple[npt.NDArray[np.uint8], Ints32]:
        if (meant := self._meant_by.get(history.f.names)) is not None:
            return meant
        known = self._by_name
        pairs = [
            known.get(name) or self._meaning(history, code, name)
            for code, name in enumerate(history.f.names)
        ]
        reads = np.array([pair[0] for pair in pairs], dtype=np.uint8)
        meant = reads, np.array([pair[1] for pair in pairs], dtype=np.int32)
        if all(name in known for name in history.f.names):  # no operation may have the others
            if len(self._meant_by) == KEPT_NAMES:
                self._meant_by.clear()
            self._meant_by[history.f.names] = meant
        return meant

    def _meaning(self, history: ConcurrentHistory, code: int, name: str) -> tuple[int, int]:
        if self._meanings is None:
            meaning = Meaning(name, argument=True, result=True)
        elif name in self._meanings:
            meaning = self._meanings[name]
        else:
            refuse_unknown(history, self.model, code)
            return 0, 0  # a name that no operation has
        reads = (
            (lib.SHL_READS_ARGUMENT if meaning.argument else 0)
            | (lib.SHL_READS_RESULT if meaning.result else 0)
            | (lib.SHL_IS_PURE if meaning.pure else 0)
            | (lib.SHL_SEES_FAILURE if meaning.failed else 0)
        )
        pair = reads, self._means.setdefault(meaning.f, len(self._means))
        self._by_name[name] = pair
        return pair

    def _remember(self, history: ConcurrentHistory, known: int, fresh: Ints32) -> None:
        """What the new kinds stand for. Few are made at once; many only when they are asked for."""
        is_few = len(fresh) <= 1024
        if not self._charge((KIND_BYTES if is_few else PLACE_BYTES) * len(fresh)):
            raise MemoryError
        if is_few:
            new = [self._canonical(each) for each in history.operations(fresh)]
            self._operations += new
            if (is_pure := self._is_pure) is not None:
                for kind, operation in enumerate(new, known):
                    if _says_pure(self.model, is_pure, operation):
                        lib.shl_kinds_mark_pure(self._kinds, kind)
            return
        self._operations += [None] * len(fresh)
        rows = fresh.copy()
        self._described.append(
            (known, lambda at: self._canonical(history.operation(int(rows[at]))))
        )

    def _canonical(self, operation: Operation) -> Operation:
        f = self._meanings[operation.f].f if self._meanings is not None else operation.f
        process = operation.process if self._by_process else -1
        return Operation(f, operation.argument, operation.result, process)

    # --- questions ------------------------------------------------------------------------------

    def operation(self, kind: int) -> Operation:
        operation = self._operations[kind]
        if operation is None:
            if not self._charge(KIND_BYTES):
                raise OutOfMemory
            first, described = next(each for each in reversed(self._described) if each[0] <= kind)
            operation = self._operations[kind] = described(kind - first)
        return operation

    def ask(self, state: int, kind: int) -> int:
        """The engine's question. What the model raises is kept in ``failure``."""
        try:
            operation = self._operations[kind] or self.operation(kind)
            answer = self.model.step(self._states[state], operation)
            if answer is None:
                return ILLEGAL
            if not isinstance(answer, OneOf):
                number = self._numbers.get(answer)
                return self._number(answer) if number is None else number
            for each in answer.states:
                lib.shl_branch(self._table, self._number(each))
            return BRANCHES
        except OutOfMemory:
            return int(lib.SHL_ASK_FAILED)
        except BaseException as raised:
            self.failure = (kind, raised)
            return int(lib.SHL_ASK_FAILED)

    def _charge(self, size: int) -> bool:
        if not lib.shl_charge(self.budget, size):
            return False
        self._charged += size
        return True

    def _number(self, state: Hashable) -> int:
        if state is None:
            raise TypeError("a state is never None")
        number = self._numbers.get(state)
        if number is None:
            if not self._charge(STATE_BYTES + _size_of(state)):
                raise OutOfMemory
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
        return number


def _says_pure(model: Model, is_pure: Callable[[Operation], bool], operation: Operation) -> bool:
    try:
        return is_pure(operation)
    except Exception as raised:  # a foreign model may fail in any way
        if own_name(model):
            raise UsageError(
                f"model {model_name(model)} can't read {operation.f}: {raised}"
            ) from raised
        raise UsageError(
            f"model {model_name(model)} can't say whether {operation.f} of"
            f" {operation.argument!r} is pure: {type(raised).__name__}: {raised}"
        ) from raised


_COLLECTIONS: Final = (tuple, frozenset)


def _size_of(state: Hashable) -> int:
    """Bytes of a state, and of what it holds that other states don't: pairs, a string."""
    size = sys.getsizeof(state)
    if isinstance(state, _COLLECTIONS) and state:
        element = next(iter(state))
        if isinstance(element, tuple) or (len(state) == 1 and isinstance(element, str)):
            size += len(state) * sys.getsizeof(element)
    return size


class OutOfMemory(MemoryError):
    """The budget refused a state."""


@ffi.def_extern(error=lib.SHL_ASK_FAILED)  # type: ignore[untyped-decorator]
def shl_ask(user: CData, table: CData, state: int, kind: int) -> int:
    transitions: Transitions = ffi.from_handle(user)
    return transitions.ask(state, kind)


def refuse_unknown(history: ConcurrentHistory, model: Model, code: int) -> None:
    """Raises UsageError if an operation has the f ``code``, which the model does not know."""
    rows = np.flatnonzero(history.f.codes == code)
    if len(rows):
        meanings = meanings_of(model) or {}
        known = list(dict.fromkeys(meaning.f for meaning in meanings.values()))
        text = f"{', '.join(known[:-1])} and {known[-1]}" if len(known) > 1 else "".join(known)
        place = f"{history.place_name} {history.place[rows[0]]}"
        raise UsageError(
            f'model {model_name(model)} knows {text}, {place} has "{history.f.names[code]}"'
        )


def canonical(history: ConcurrentHistory, model: Model) -> ConcurrentHistory:
    """The history with the model's own name for each f, one code for each name, and as the model
    reads it besides (``as_read``: owners for processes).

    Raises UsageError: the model does not know an f.
    """
    as_read: Callable[[ConcurrentHistory], ConcurrentHistory] | None
    as_read = getattr(model, "as_read", None)
    if as_read is not None:
        history = as_read(history)
    meanings = meanings_of(model)
    names = history.f.names
    if meanings is None:
        return history
    own = []
    for code, name in enumerate(names):
        if (meaning := meanings.get(name)) is None:
            refuse_unknown(history, model, code)
        own.append(name if meaning is None else meaning.f)
    if tuple(own) == names:
        return history
    merged = list(dict.fromkeys(own))
    codes = np.array([merged.index(name) for name in own], dtype=np.int32)
    return replace(history, f=Words(codes[history.f.codes], tuple(merged)))
