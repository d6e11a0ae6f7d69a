"""Which of a window's orders are legal, with all that the window leaves out.

A window may begin in any state, or be about a few values only. So an order of its operations need
not be part of an order of everything up to there. Each is tried: the general search is asked for an
order of the whole prefix in which the window's operations take effect one after the other as the
order says, and those that it says nothing of, not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shalott.checkers.history.column_values import Words
from shalott.checkers.history.concurrent import NEVER, OK, ConcurrentHistory, Operation
from shalott.checkers.linearizability.order_search import Order, search, step_of
from shalott.checkers.linearizability.running_check import Limits, judge
from shalott.checkers.linearizability.transitions import canonical
from shalott.checkers.linearizability.window import Window
from shalott.checkers.models import Meaning, Model, OneOf, meanings_of
from shalott.core.errors import UsageError

MOST_OPERATIONS: Final = 20_000  # of a prefix that orders are tried on
_ORDER_S: Final = 0.2  # for each order
_TRIES: Final = 10_000  # transitions, when orders from one state are looked for
_BEFORE, _NOT, _END = -1, -2, -3  # what an operation is that is no step of the order


@dataclass(frozen=True, slots=True)
class Before:
    """What was called before the return at which a window's orders end."""

    prefix: ConcurrentHistory
    rows: list[int]  # where the window's parts stand in it
    model: Model
    out_of_time: Callable[[], bool]

    @classmethod
    def of(
        cls,
        history: ConcurrentHistory,
        rows: list[int],
        rank: int,
        model: Model,
        out_of_time: Callable[[], bool],
    ) -> Before:
        """``rank``: of that return."""
        called = history.take(slice(int(np.searchsorted(history.call, rank))))
        ret = np.where(called.ret >= rank, np.int32(NEVER), called.ret)
        return cls(replace(called, ret=ret), rows, model, out_of_time)

    def legal(self, window: Window) -> tuple[Window, int]:
        """(the window without orders known to be illegal, how many are not known to be legal).

        If none is left, orders from each of the states in which it may begin are tried.
        """
        orders, unknown = self._tried(window, window.found.orders)
        if not orders:
            step = step_of(window.model)
            for start in window.starts if len(window.starts) > 1 else ():
                if self.out_of_time():
                    break
                found = search(window.parts, [start], step, _TRIES)
                if found.stuck == window.found.stuck:
                    more, unsure = self._tried(window, found.orders)
                    orders, unknown = orders + more, unknown + unsure
        return replace(window, found=replace(window.found, orders=tuple(orders))), unknown

    def _tried(self, window: Window, orders: Sequence[Order]) -> tuple[list[Order], int]:
        kept, unknown = [], 0
        for order in orders:
            valid: bool | str = "unknown"
            if len(self.prefix) <= MOST_OPERATIONS and not self.out_of_time():
                valid = _is_legal(self.prefix, self.rows, window, order, self.model)
            if valid is not False:
                kept.append(order)
                unknown += valid == "unknown"
        return kept, unknown


def _is_legal(
    prefix: ConcurrentHistory, rows: list[int], window: Window, order: Order, model: Model
) -> bool | str:
    tags = dict.fromkeys(range(len(window.parts)), _NOT)
    tags |= {at: _BEFORE for at, part in enumerate(window.parts) if part.is_open}
    tags |= {at: number for number, (at, _) in enumerate(order.steps)}
    following = _Following.of(model, window, order)
    codes, names = prefix.f.codes.copy(), list(prefix.f.names)
    for at, tag in tags.items():
        if rows[at] < len(prefix):
            f = prefix.f.names[codes[rows[at]]]
            codes[rows[at]] = len(names)
            names.append(following.tagged(f, tag))
    names.append(following.tagged("", _END))
    tagged = _with_end(replace(prefix, f=Words(codes, tuple(names))))
    try:
        limits = Limits(_ORDER_S, None, 1)
        return judge(canonical(tagged, following), following, limits, by="general").valid
    except UsageError:  # of a model that was asked for what it never was asked before
        return "unknown"


def _with_end(history: ConcurrentHistory) -> ConcurrentHistory:
    """One operation more, of the last name, after all others."""
    n = len(history)
    longer = history.take(np.append(np.arange(n), n - 1))
    last = int(max(history.call[-1], history.ret[history.ret != NEVER].max(initial=0)))
    codes, kinds = longer.f.codes.copy(), longer.type.copy()
    call, ret = longer.call.copy(), longer.ret.copy()
    codes[n], kinds[n], call[n], ret[n] = len(history.f.names) - 1, OK, last + 1, last + 2
    return replace(longer, f=Words(codes, history.f.names), type=kinds, call=call, ret=ret)


@dataclass(frozen=True, slots=True)
class _Following:
    """A model whose tagged operations take effect in an order that was given.

    A state is that of the model, and how many steps of the order were taken.
    """

    model: Model
    init: Hashable
    count: int
    states: tuple[Hashable, ...] | None  # before each step and at the end; None: not the model's
    meanings: dict[str, Meaning] | None
    tags: dict[str, tuple[str, int]]

    name = "an order of the window"

    @classmethod
    def of(cls, model: Model, window: Window, order: Order) -> _Following:
        states = (order.begin, *(state for _, state in order.steps))
        known: Mapping[str, Meaning] | None = meanings_of(model)
        return cls(
            model=model,
            init=(model.init, 0),
            count=len(order.steps),
            states=None if window.starts == (model.init,) or window.model is not model else states,
            meanings=None if known is None else dict(known),
            tags={},
        )

    @property
    def by_process(self) -> bool:
        return bool(getattr(self.model, "by_process", False))

    def is_pure(self, operation: Operation) -> bool:
        says = getattr(self.model, "is_pure", None)
        return operation.f not in self.tags and says is not None and bool(says(operation))

    def tagged(self, f: str, tag: int) -> str:
        """Another name for one operation."""
        name = f"{len(self.tags)} {f}"
        meaning = Meaning(name)
        if self.meanings is not None:
            if f:
                meaning = replace(self.meanings[f], f=name, pure=False)
            self.meanings[name] = meaning
            f = self.meanings[f].f if f else f
        self.tags[name] = (f, tag)
        return name

    def step(self, state: Hashable, op: Operation) -> Hashable | OneOf | None:
        assert isinstance(state, tuple)
        own, taken = state
        f, tag = self.tags.get(op.f, (op.f, None))
        if tag == _END:
            return state if taken == self.count and self._is_at(taken, own) else None
        if tag == _NOT or (tag == _BEFORE and taken):
            return None
        if tag is None or tag == _BEFORE:
            return _paired(self.model.step(own, op._replace(f=f)), taken)
        if tag != taken or not self._is_at(taken, own):
            return None
        return _paired(self.model.step(own, op._replace(f=f)), taken + 1)

    def _is_at(self, taken: int, state: Hashable) -> bool:
        return self.states is None or self.states[taken] == state


def _paired(after: Hashable | OneOf | None, taken: int) -> Hashable | OneOf | None:
    if after is None:
        return None
    if isinstance(after, OneOf):
        return OneOf(tuple((state, taken) for state in after.states))
    return after, taken
