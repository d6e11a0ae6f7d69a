"""Histories for the engine itself: operations are kinds of a small model, asked through cffi."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shalott.checkers.engine import column, ffi, lib, new_budget
from shalott.checkers.history.concurrent import NEVER


class Op(NamedTuple):
    """Ranks of its call and its return (None: it crashed), and its kind."""

    call: int
    ret: int | None
    kind: int


@dataclass
class Tabled:
    """A model over kinds: ``step`` answers a state, a list of states, or None."""

    kinds: Sequence[Any]
    step: Callable[[Any, Any], Any]
    init: Hashable
    pure: Callable[[Any], bool]
    states: list[Hashable] = field(default_factory=list)
    numbers: dict[Hashable, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.number(self.init)

    def number(self, state: Hashable) -> int:
        if state not in self.numbers:
            self.numbers[state] = len(self.states)
            self.states.append(state)
        return self.numbers[state]

    def outcomes(self, state: Hashable, kind: int) -> list[Hashable]:
        after = self.step(state, self.kinds[kind])
        return after if isinstance(after, list) else [] if after is None else [after]


def _cas_step(state: int, kind: tuple[str, int, int]) -> int | None:
    f, a, b = kind
    if f == "write":
        return a
    if f == "cas":
        return b if state == a else None
    if f == "any":
        return state
    return state if (state == a) == (f == "read") else None  # read, or a failed cas of a


def cas_register(values: int) -> Tabled:
    """Reads, writes, compare-and-sets that succeeded and that failed; initially 0.

    The last kind, "any", is legal in every state and changes none.
    """
    every = range(values)
    kinds = [("write", a, 0) for a in every] + [("read", a, 0) for a in every]
    kinds += [(f, a, b) for f in ("cas", "failed") for a in every for b in every]
    return Tabled(
        [*kinds, ("any", 0, 0)],
        _cas_step,
        0,
        lambda kind: kind[0] in ("read", "failed", "any") or kind == ("cas", kind[1], kind[1]),
    )


def _bag_step(state: tuple[int, ...], kind: tuple[str, int]) -> Any:
    f, a = kind
    if f == "enqueue":
        return tuple(sorted((*state, a)))
    if f == "empty":
        return None if state else state
    if f == "any":
        return state
    places = [i for i in range(len(state)) if f == "take" or state[i] == a]
    return [state[:i] + state[i + 1 :] for i in places] or None


def bag(values: int) -> Tabled:
    """An unordered queue; "take" is a dequeue that may take any message: several next states."""
    kinds = [(f, a) for f in ("enqueue", "dequeue") for a in range(values)]
    return Tabled(
        [*kinds, ("take", 0), ("empty", 0), ("any", 0)],
        _bag_step,
        (),
        lambda kind: kind[0] in ("empty", "any"),
    )


def _registers_step(state: tuple[int, int], kind: tuple[str, int, int]) -> Any:
    f, a, b = kind
    if f == "write one":
        return (b, state[1]) if a == 0 else (state[0], b)
    if f == "write both":
        return (a, b)
    if f == "read one":
        return state if state[a] == b else None
    return state if f == "any" or state == (a, b) else None


def two_registers() -> Tabled:
    """Of two values: a write of both is a reset, a write of one is none."""
    fs = ("write one", "write both", "read one", "read both")
    kinds = [(f, a, b) for f in fs for a in range(2) for b in range(2)]
    return Tabled(
        [*kinds, ("any", 0, 0)], _registers_step, (0, 0), lambda kind: not kind[0].startswith("w")
    )


def semaphore(permits: int) -> Tabled:
    """No kind is a reset, and what is taken is given back: states are passed again and again."""
    return Tabled(
        [*((f, count) for f in ("take", "give") for count in (1, 2)), ("any", 0)],
        lambda state, kind: (
            state
            if kind[0] == "any"
            else free
            if 0 <= (free := state + kind[1] * (1 if kind[0] == "give" else -1)) <= permits
            else None
        ),
        permits,
        lambda kind: kind[0] == "any",
    )


class Columns(NamedTuple):
    """``shl_operations`` and the arrays that it borrows."""

    operations: Any
    arrays: tuple[Any, ...]


def columns(ops: Sequence[Op]) -> Columns:
    call = np.array([op.call for op in ops], dtype=np.int32)
    ret = np.array([NEVER if op.ret is None else op.ret for op in ops], dtype=np.int32)
    kind = np.array([op.kind for op in ops], dtype=np.int32)
    arrays = (call, ret, kind)
    operations = ffi.new("shl_operations *")
    operations.n = len(ops)
    operations.ranks = 2 * len(ops)
    operations.call, operations.ret, operations.kind = (column(array) for array in arrays)
    return Columns(operations, (arrays, operations.call, operations.ret, operations.kind))


class Asked:
    """A model's table for the length of a ``with``; everything it held is given back at its end."""

    def __init__(self, model: Tabled, *, pure: Sequence[int] | None = None) -> None:
        self.model = model
        self.error: Exception | None = None
        flags = [model.pure(kind) for kind in model.kinds] if pure is None else pure
        self._pure = np.array(flags, dtype=np.uint8)
        self._budget = new_budget()

        def ask(_user: Any, table: Any, state: int, kind: int) -> int:
            try:
                after = model.step(model.states[state], model.kinds[kind])
            except Exception as error:
                self.error = error
                return int(lib.SHL_ASK_FAILED)
            if not isinstance(after, list):
                return int(lib.SHL_ILLEGAL) if after is None else model.number(after)
            for one in after:
                lib.shl_branch(table, model.number(one))
            return int(lib.SHL_BRANCHES)

        self._ask = ffi.callback("int32_t(void *, shl_table *, int32_t, int32_t)", ask)

    def __enter__(self) -> Any:
        self.table = lib.shl_table_new(
            len(self.model.kinds), column(self._pure), self._ask, ffi.NULL, self._budget
        )
        return self.table

    def __exit__(self, *_: object) -> None:
        lib.shl_table_free(self.table, self._budget)
        assert self._budget.bytes == 0


def search(ops: Sequence[Op], model: Tabled, methods: int, budget: Any = None) -> Any:
    """``shl_found`` of a search with limits that a small history never meets."""
    budget = budget or new_budget(time_limit_s=30, memory_limit_bytes=1 << 30)
    found = ffi.new("shl_found *")
    made = columns(ops)
    with Asked(model) as table:
        lib.shl_search(made.operations, table, methods, budget, found)
    assert budget.bytes == 0
    return found


def is_linearizable(ops: Sequence[Op], model: Tabled) -> bool:
    """All orders, without any cleverness."""

    def from_here(done: frozenset[int], state: Hashable) -> bool:
        left = [i for i in range(len(ops)) if i not in done]
        rets = [ret for i in left if (ret := ops[i].ret) is not None]
        if not rets:
            return True
        return any(
            from_here(done | {i}, after)
            for i in left
            if ops[i].call < min(rets)
            for after in model.outcomes(state, ops[i].kind)
        )

    return from_here(frozenset(), model.init)


def prefix(ops: Sequence[Op], last: int) -> list[Op]:
    """The events up to rank ``last``: what had not returned by then is pending for ever."""
    return [
        Op(op.call, op.ret if op.ret is not None and op.ret <= last else None, op.kind)
        for op in ops
        if op.call <= last
    ]


def random_ops(
    rng: random.Random, model: Tabled, *, count: int, processes: int, crash: float, wrong: float
) -> list[Op]:
    """A linearizable history by construction; with probability ``wrong`` one operation is not what
    happened."""
    state, at, called = model.init, 0, 0
    pending: list[list[int | None]] = []  # [call, kind once it took effect]
    ops: list[Op] = []
    while called < count or pending:
        if called < count and len(pending) < processes and (not pending or rng.random() < 0.5):
            pending.append([at, None])
            at, called = at + 1, called + 1
            continue
        chosen = rng.randrange(len(pending))
        call, kind = pending[chosen]
        assert call is not None
        if kind is not None:
            ops.append(Op(call, at, kind))
            at += 1
            del pending[chosen]
            continue
        legal = [k for k in range(len(model.kinds)) if model.outcomes(state, k)]
        kind = rng.choice(legal)
        crashes = rng.random() < crash
        if not crashes or rng.random() < 0.5:
            state = rng.choice(model.outcomes(state, kind))
        if crashes:
            ops.append(Op(call, None, kind))
            del pending[chosen]
        else:
            pending[chosen][1] = kind
    if rng.random() < wrong:
        changed = rng.randrange(len(ops))
        ops[changed] = ops[changed]._replace(kind=rng.randrange(len(model.kinds)))
    return sorted(ops)


def widened(ops: Sequence[Op], model: Tabled, extra: int) -> list[Op]:
    """The same history beside ``extra`` reads of anything that last from before it to beyond it."""
    anything = len(model.kinds) - 1
    moved = [Op(op.call + extra, None if op.ret is None else op.ret + extra, op.kind) for op in ops]
    end = extra + 2 * len(ops)
    reads = [Op(i, end + i, anything) for i in range(extra)]
    ranks = {
        rank: place
        for place, rank in enumerate(
            sorted(
                [op.call for op in [*reads, *moved]]
                + [op.ret for op in [*reads, *moved] if op.ret is not None]
            )
        )
    }
    return [
        Op(ranks[op.call], None if op.ret is None else ranks[op.ret], op.kind)
        for op in [*reads, *moved]
    ]
