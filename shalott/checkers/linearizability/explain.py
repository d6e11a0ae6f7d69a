"""Explains why the history of one object is not linearizable.

What found the violation says where: the operation at whose return no order was left (the general
search), or the operations that prove it (a monitor). From the shortest prefix that is not
linearizable a window is chosen that proves it alone (explain_window), with the longest partial
linearizations and what stops each, and a sentence that says it in the domain's words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import cores
from shalott.checkers.history.column_values import exact
from shalott.checkers.history.concurrent import (
    FORM,
    INFO,
    NEVER,
    NOTHING,
    ConcurrentHistory,
    Operation,
    Values,
)
from shalott.checkers.linearizability.explanation import (
    CONCURRENT,
    CONTEXT,
    EARLIER,
    STUCK,
    TEXT_MAX,
    TYPES,
    WITNESS,
    Blocked,
    Explanation,
    PartialLinearization,
    ShownOperation,
    Step,
    Verdict,
    Violation,
    operation_text,
)
from shalott.checkers.linearizability.legal_orders import Before
from shalott.checkers.linearizability.model_words import (
    LOCKS,
    cause_of,
    cut_apart,
    cut_operations,
    object_name,
    state_text,
    stuck_sentence,
    why_not,
)
from shalott.checkers.linearizability.order_search import ModelFailed, Order, Part
from shalott.checkers.linearizability.running_check import By, Limits, judge
from shalott.checkers.linearizability.transitions import canonical
from shalott.checkers.linearizability.window import RECENT_MAX, Chooser, Window, parts_of
from shalott.checkers.models import Model, make_model, meanings_of, model_name, own_name
from shalott.checkers.monitors.monitor import cut

SEARCH: Final = "general search"
_LONG: Final = 20_000  # operations: of a longer prefix only a part is looked at
_CONTEXT: Final = 4  # operations shown before the window
_SAMPLE: Final = 8_000  # operations that show that there are too many kinds
_KINDS_MAX: Final = 4_000  # different operations whose states are looked for
STATE_TEXT_MAX: Final = 120  # characters of a state in an order
_UNPROVED: Final = 24  # operations shown when no window proves it

Rows = npt.NDArray[np.int64]


def explain_verdict(
    history: ConcurrentHistory, verdict: Verdict, model: Model | str, *, time_limit_s: float = 2.0
) -> tuple[Explanation, ConcurrentHistory]:
    """Explains what ``checkers.linearizability.checking.check`` found, and gives the object's own
    history.

    Raises ValueError: the verdict is not "invalid".
    """
    found = verdict.violation
    if found is None:
        raise ValueError(f"a verdict {verdict.valid!r} needs no explanation")
    model = make_model(model) if isinstance(model, str) else model
    history = canonical(verdict.judged or history, model)
    rows = np.arange(len(history), dtype=np.int64)
    if len(history.key.names) > 1:
        rows = np.flatnonzero(history.key.equal(found.key))
    mine = history if len(rows) == len(history) else history.take(rows)
    own = replace(
        found,
        stuck=None if found.stuck is None else int(np.searchsorted(rows, found.stuck)),
        operations=tuple(int(row) for row in np.searchsorted(rows, found.operations)),
    )
    if own.prefix is None:
        own = _with_prefix(mine, model, own, time_limit_s + 2 * verdict.elapsed_s)
    explanation = explain(
        mine,
        model,
        stuck=own.stuck,
        prefix=own.prefix,
        witness=own.operations,
        reason=own.reason,
        by=own.by,
        time_limit_s=time_limit_s,
    )
    return msgspec.structs.replace(explanation, prefix_is_shortest=own.prefix_is_shortest), mine


def _with_prefix(
    history: ConcurrentHistory, model: Model, found: Violation, time_limit_s: float
) -> Violation:
    """A violation of one object's history with its shortest prefix, if that is found in time."""
    by: By = "general" if found.by.startswith(SEARCH) else "auto"
    limits = Limits(time_limit_s, None, cores())
    again = judge(history, model, limits, by=by, find_prefix=True)
    return again.violation or found


def explain(
    history: ConcurrentHistory,
    model: Model,
    *,
    stuck: int | None = None,
    prefix: int | None = None,
    witness: Sequence[int] = (),
    reason: str = "",
    by: str = SEARCH,
    time_limit_s: float = 2.0,
) -> Explanation:
    """Why ``history``, of one object and known not to be linearizable, is not.

    stuck: the row at whose return no order was left; prefix: the rank of that return. One of them
    is enough; with neither, the last return of the ``witness`` rows, which prove it, is taken.
    reason: a sentence; that of a search, which knows no more than its place, is bettered.
    """
    row, rank = _place(history, stuck, prefix, witness)
    deadline = time.monotonic() + time_limit_s
    sought = Sought(model, row, rank, tuple(witness), lambda: time.monotonic() > deadline)
    choice = choose_window(history, sought)
    return _Writer(history, sought, *_with_legal_orders(history, choice, sought)).explanation(
        reason, by
    )


@dataclass(frozen=True, slots=True)
class Sought:
    """What to explain: a row, the rank of its return, and the rows that prove it."""

    model: Model
    stuck: int
    rank: int
    witness: tuple[int, ...]
    out_of_time: Callable[[], bool]
    reduces: bool = True  # what the proof does not need is left out


@dataclass(frozen=True, slots=True)
class Choice:
    """A window, if one was found; ``original`` are the rows in the history of the parts' rows."""

    window: Window | None
    parts: Sequence[Part]
    original: Rows
    prefix_count: int
    prefix: ConcurrentHistory | None = None
    chosen: Rows | None = None  # the rows in ``prefix`` of the parts' rows
    failure: str = ""  # of the model: there is no window then


def choose_window(history: ConcurrentHistory, sought: Sought) -> Choice:
    """A proof by the prefix as it was then; or else by it and what is known of its end."""
    try:
        return _chosen(history, sought)
    except ModelFailed as failed:
        prefix = cut(history, sought.rank)
        return Choice(None, (), np.arange(0, dtype=np.int64), len(prefix), failure=str(failed))


def _chosen(history: ConcurrentHistory, sought: Sought) -> Choice:
    choice = _choose(history, cut(history, sought.rank), sought)
    if choice.window is None and not sought.out_of_time():
        choice = _choose(history, _until(history, sought.rank), sought)
    return choice


def _choose(history: ConcurrentHistory, prefix: ConcurrentHistory, sought: Sought) -> Choice:
    rows = np.arange(len(prefix), dtype=np.int64)
    if not np.array_equal(history.call[: len(prefix)], prefix.call):  # failed ones are left out
        rows = np.searchsorted(history.call, prefix.call)
    wanted = np.array([row for row in (sought.stuck, *sought.witness) if row in rows])
    inside = np.searchsorted(rows, wanted)
    chosen = _looked_at(prefix, inside)
    is_complete = len(chosen) == len(prefix)
    parts = parts_of(prefix.take(chosen), sought.model)
    seek = [int(at) for at in np.searchsorted(chosen, inside)]
    chooser = Chooser(
        model=sought.model,
        stuck=seek[0],
        is_complete=is_complete,
        kinds=_kinds(prefix, parts, sought.model, complete=is_complete),
        out_of_time=sought.out_of_time,
        reduces=sought.reduces,
    )
    found = chooser.find(parts, seek[1:])
    return Choice(found, parts, rows[chosen], len(prefix), prefix, chosen)


def _with_legal_orders(
    history: ConcurrentHistory, choice: Choice, sought: Sought
) -> tuple[Choice, str]:
    """(with those orders only that may stand, a note on them).

    Where what a smaller window leaves out forbids all of its orders, a larger one is taken.
    """
    if choice.window is None:
        return choice, ""
    legal, unknown = _legal(history, choice, sought)
    if not _orders(legal) and not sought.out_of_time():
        whole = choose_window(history, replace(sought, reduces=False))
        if whole.window is not None:
            whole, whole_unknown = _legal(history, whole, sought)
            if _orders(whole):
                legal, unknown = whole, whole_unknown
    if unknown:
        return legal, (
            f"Whether {unknown:,} of the orders shown go on from an order of all that was before "
            "was not found out in time."
        )
    if not _orders(legal):
        return legal, "No order is shown: what is left out here forbids those of the window."
    return legal, ""


def _orders(choice: Choice) -> tuple[Order, ...]:
    return () if choice.window is None else choice.window.found.orders


def _legal(history: ConcurrentHistory, choice: Choice, sought: Sought) -> tuple[Choice, int]:
    window, prefix, chosen = choice.window, choice.prefix, choice.chosen
    if window is None or prefix is None or chosen is None or window.found.stuck is None:
        return choice, 0
    rank = int(history.ret[choice.original[window.parts[window.found.stuck].row]])
    rows = [int(chosen[part.row]) for part in window.parts]
    before = Before.of(prefix, rows, rank, sought.model, sought.out_of_time)
    legal, unknown = before.legal(window)
    return replace(choice, window=legal), unknown


def _place(
    history: ConcurrentHistory, stuck: int | None, prefix: int | None, witness: Sequence[int]
) -> tuple[int, int]:
    """(row, rank) of the return at which no order is left."""
    if stuck is not None and prefix is None:
        return stuck, int(history.ret[stuck])
    if prefix is not None:
        at = np.flatnonzero(history.ret == prefix)
        if not len(at):
            raise ValueError(f"no operation returned at rank {prefix}")
        return int(at[0]), prefix
    completed = [row for row in (witness or range(len(history))) if history.ret[row] != NEVER]
    if not completed:
        raise ValueError("a history in which nothing returned is linearizable")
    row = max(completed, key=lambda row: int(history.ret[row]))
    return row, int(history.ret[row])


def _until(history: ConcurrentHistory, rank: int) -> ConcurrentHistory:
    """What was called by then, in the same rows; what returned later may not have happened yet.

    Its outcome is known nevertheless: if no order of what returned by then, with any of the others
    as they ended, is legal, then none of the whole is.
    """
    called = history.take(slice(int(np.searchsorted(history.call, rank))))
    return replace(called, ret=np.where(called.ret > rank, np.int32(NEVER), called.ret))


def _looked_at(prefix: ConcurrentHistory, wanted: Rows) -> Rows:
    """All rows of a short prefix. Of a long one its end, and all that share a value with it."""
    if len(prefix) <= _LONG:
        return np.arange(len(prefix), dtype=np.int64)
    keep = np.zeros(len(prefix), dtype=np.bool_)
    keep[-_LONG // 4 :] = True
    keep[np.flatnonzero(prefix.ret == NEVER)[-_LONG // 4 :]] = True
    returned = np.where(prefix.ret == NEVER, -1, prefix.ret)
    recent = np.argpartition(returned, len(prefix) - RECENT_MAX)[-RECENT_MAX:]
    wanted = np.concatenate([wanted, recent])
    keep[wanted] = True
    forms: dict[Hashable, int] = {}
    columns = [_value_numbers(column, forms) for column in (prefix.argument, prefix.result)]
    values = np.unique(np.concatenate([column[wanted] for column in columns]))
    for column in columns:
        keep |= np.isin(column, values[values != 0])
    return np.flatnonzero(keep)


def _value_numbers(column: Values, forms: dict[Hashable, int]) -> Rows:
    """A number for each value, the same for equal ones; 0 for nothing."""
    ids = [forms.setdefault(exact(form), len(forms)) for form in column.forms]
    if not column.forms:
        return column.number * 4 + column.kind
    is_form = column.kind == FORM
    number = np.where(is_form, np.array(ids)[np.where(is_form, column.number, 0)], column.number)
    return np.where(column.kind == NOTHING, 0, number * 4 + column.kind)


def _kinds(
    prefix: ConcurrentHistory, parts: Sequence[Part], model: Model, *, complete: bool
) -> list[Operation] | None:
    """The different operations of the whole prefix; None if there are too many to use."""
    if complete:
        return list(dict.fromkeys(part.operation for part in parts))
    columns = (
        prefix.f.codes,
        prefix.argument.kind,
        prefix.argument.number,
        prefix.result.kind,
        prefix.result.number,
        prefix.type,
    )
    sample = [column[:_SAMPLE] for column in columns]
    if len(np.unique(np.stack(sample, axis=1), axis=0)) > _KINDS_MAX:
        return None
    first = np.unique(np.stack(columns, axis=1), axis=0, return_index=True)[1]
    if len(first) > _KINDS_MAX:
        return None
    return [part.operation for part in parts_of(prefix.take(np.sort(first)), model)]


class _Writer:
    """Puts a window into the words and numbers of an explanation."""

    def __init__(
        self, history: ConcurrentHistory, sought: Sought, choice: Choice, note: str = ""
    ) -> None:
        self.history = history
        self.note = note
        self.model = sought.model
        self.name = model_name(sought.model)
        self.own_name = own_name(sought.model)
        self.last = sought.stuck
        self.prefix = sought.rank
        self.stuck = self._stuck(choice)
        self.rank = int(history.ret[self.stuck])  # at this return the orders end
        self.witness = tuple(row for row in sought.witness if row != sought.stuck)
        self.choice = choice
        self.original = choice.original

    def _stuck(self, choice: Choice) -> int:
        """Where the orders end. Knowing how all ended, that may be before the prefix's last return.

        Until then an operation that was under way might have returned something else.
        """
        if choice.window is None or choice.window.found.stuck is None:
            return self.last
        return int(choice.original[choice.window.parts[choice.window.found.stuck].row])

    def explanation(self, reason: str, by: str) -> Explanation:
        window, parts = self.choice.window, self.choice.parts
        composes = not reason or (by.startswith(SEARCH) and window is not None)
        proof = {} if window is None else {int(self.original[p.row]): p for p in window.parts}
        roles = self.roles(proof, window)
        rows = sorted(roles)
        position = {row: at for at, row in enumerate(rows)}
        texts = cut_operations([self.text(row) for row in rows], TEXT_MAX)
        notes = []
        if window is not None and not window.is_proof:
            notes.append(
                f"{window.left_out:,} operations without an answer are not shown. "
                "Together they can't explain it, which was found by counting them all."
            )
        elif window is not None and window.left_out:
            notes.append(
                f"Not shown: earlier crashed operations that help no order ({window.left_out:,})."
            )
        if window is not None and len(window.starts) > 1:
            notes.append(
                f"Before the window {object_name(self.own_name)} may have been in any state: "
                "from none of them there is an order."
            )
        if self.note:
            notes.append(self.note)
        if self.choice.failure:
            notes.append(f"The model failed when a window was looked for: {self.choice.failure}.")
        if window is None:
            notes.append("No small window was found that proves it alone; shown is where it ended.")
        return Explanation(
            model=self.name,
            reason=self.sentence(window, parts) if composes else reason,
            by=by,
            key=self.history.key.names[self.history.key.codes[self.stuck]],
            operation_count=len(self.history),
            prefix=self.prefix,
            prefix_count=self.choice.prefix_count,
            operations=tuple(
                self.shown(row, roles[row], text) for row, text in zip(rows, texts, strict=True)
            ),
            linearizations=() if window is None else self.linearizations(window, position),
            is_proof=window is not None and window.is_proof,
            is_minimal=window is not None and window.is_minimal,
            meanings=dict(meanings_of(self.model) or {}),
            place_name=self.history.place_name,
            source=self.history.source,
            notes=tuple(notes),
        )

    def roles(self, proof: dict[int, Part], window: Window | None) -> dict[int, str]:
        roles: dict[int, str] = {}
        # Without a monitor's witnesses, all that a small proof can't do without are.
        is_small = window is not None and window.is_minimal and len(proof) <= _UNPROVED
        earlier = WITNESS if is_small and not self.witness else EARLIER
        for row in self.context(proof, window):
            roles[row] = CONTEXT
        for row in proof:
            roles[row] = CONCURRENT if self.is_concurrent(row) else earlier
        for row in (*self.witness, self.last):
            roles[row] = WITNESS
        roles[self.stuck] = STUCK
        return roles

    def is_concurrent(self, row: int) -> bool:
        return bool(self.history.call[row] < self.rank < self.history.ret[row])

    def context(self, proof: dict[int, Part], window: Window | None) -> list[int]:
        """The last that returned before the window, or what there is if there is no window."""
        history = self.history
        if window is None:
            returned = np.flatnonzero(history.ret < self.rank)
            latest = returned[np.argsort(history.ret[returned])][-_UNPROVED:]
            pending = np.flatnonzero((history.call < self.rank) & (history.ret > self.rank))
            return [*latest.tolist(), *pending[-_UNPROVED:].tolist()]
        if len(proof) > 4 * _UNPROVED:
            return []
        under_way = (history.call < self.rank) & (history.ret > self.rank) & (history.type != INFO)
        begin = min(int(history.ret[row]) for row in proof)
        returned = np.flatnonzero(history.ret < begin)
        latest = returned[np.argsort(history.ret[returned])][-_CONTEXT:]
        return [*latest.tolist(), *np.flatnonzero(under_way)[-_UNPROVED:].tolist()]

    def shown(self, row: int, role: str, text: str) -> ShownOperation:
        history = self.history
        ret, kind = int(history.ret[row]), int(history.type[row])
        call_ns = None if history.call_ns is None else int(history.call_ns[row])
        ret_ns = None if history.ret_ns is None else int(history.ret_ns[row])
        return ShownOperation(
            process=int(history.process[row]),
            text=text,
            type=TYPES[kind],
            role=role,
            call=int(history.call[row]),
            ret=None if ret == NEVER else ret,
            call_ns=call_ns,
            ret_ns=None if ret_ns is None or ret_ns < 0 else ret_ns,
            place=int(history.place[row]),
        )

    def text(self, row: int) -> str:
        operation = self.history.operation(row)
        meaning = (meanings_of(self.model) or {}).get(operation.f)
        return operation_text(operation, int(self.history.type[row]), meaning)

    def linearizations(
        self, window: Window, position: dict[int, int]
    ) -> tuple[PartialLinearization, ...]:
        at = [position[int(self.original[part.row])] for part in window.parts]
        return tuple(self.linearization(window, order, at) for order in window.found.orders)

    def linearization(
        self, window: Window, order: Order, at: Sequence[int]
    ) -> PartialLinearization:
        name = object_name(self.own_name)
        states = [order.begin, *(state for _, state in order.steps)]
        begin, *after = cut_apart(
            [state_text(window.model, state) for state in states], STATE_TEXT_MAX
        )
        return PartialLinearization(
            begin=f"{name} {begin}",
            steps=tuple(
                Step(at[part], text) for (part, _), text in zip(order.steps, after, strict=True)
            ),
            blocked=tuple(
                Blocked(at[part], why_not(window.model, order.state, window.parts[part].operation))
                for part in order.blocked
            ),
            before=tuple(at[part] for part in order.skipped),
        )

    def sentence(self, window: Window | None, parts: Sequence[Part]) -> str:
        """What the stuck operation saw, and what it could have seen."""
        history, row = self.history, self.stuck
        text = self.text(row)
        process = int(history.process[row])
        if window is None or window.found.stuck is None:
            return f"no order of the operations explains the return of {text} of process {process}"
        stuck = window.parts[window.found.stuck]
        return stuck_sentence(
            window.model,
            text,
            process,
            stuck.operation,
            window.found.states,
            self.holder(window) or cause_of(self.model, parts, stuck, window.found.states),
        )

    def holder(self, window: Window) -> str:
        """Of a lock that could not be had: who had it, if all orders say the same."""
        stuck = window.parts[window.found.stuck or 0]
        if self.own_name not in LOCKS or stuck.operation.f != "acquire":
            return ""
        last = [order.steps[-1][0] if order.steps else None for order in window.found.orders]
        if len(dict.fromkeys(last)) != 1 or last[0] is None:
            return ""
        part = window.parts[last[0]]
        if part.operation.f != "acquire":
            return ""
        process = int(self.history.process[self.original[part.row]])
        return f"process {process} had acquired it and no process had released it"
