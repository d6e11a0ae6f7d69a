"""Ids and counters: no id is given out twice, and a counter shows what was added to it.

``counter-bounds`` is jepsen.checker/counter: a read lies between what had certainly been added when
it was invoked and what may have been added when it returned. Failed adds never count, crashed ones
may. It is a necessary condition only, but one pass; the model ``counter`` decides the rest.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.passes import Case, Operation, conclude, counted, judge_objects, same
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.shape import INTEGER, NIL, Shape


@dataclass(frozen=True, slots=True)
class UniqueIds:
    """generate -> an id that no other generate ever returned."""

    name: ClassVar[str] = "unique-ids"

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=UNIQUE_IDS.fs, asks=UNIQUE_IDS.fs,
            begin=_Ids, conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        if not case.counts["acknowledged-count"]:
            case.doubts.append("No id was generated.")
        return conclude(
            self.name,
            case,
            headline=f"no id twice among {case.counts['acknowledged-count']:,}",
            words={
                "duplicated": ("1 id was given out twice", "{n} ids were given out more than once")
            },
            broken=("duplicated",),
        )


@dataclass(slots=True)
class _Ids:
    case: Case
    first: dict[Hashable, int] = field(default_factory=dict)  # by id: where it was given out
    again: dict[Hashable, list[int]] = field(default_factory=dict)

    def take(self, op: Operation) -> None:
        self.case.counts["attempt-count"] += 1
        if op.type != "ok":
            return
        self.case.counts["acknowledged-count"] += 1
        given = same(op.result)
        if given in self.first:
            self.again.setdefault(given, [self.first[given]]).append(op.place)
        else:
            self.first[given] = op.place

    def end(self) -> None:
        case = self.case
        for given, places in self.again.items():
            if case.found("duplicated"):
                case.tell(
                    "duplicated",
                    f"the id {case.shown(given)} was given out {len(places)} times: first at"
                    f" {case.at(places[0])}, again at {case.at(places[1])}",
                    *places,
                    times=len(places),
                )


UNIQUE_IDS = JudgeRecord(
    name="unique-ids",
    summary="no id is given out twice",
    make=UniqueIds,
    promise="Every generate that is acknowledged returns an id that no other one returned.",
    source="jepsen.checker/unique-ids",
    fs=("generate",),
    by_key=True,
    wants=lambda shape: shape.within("generate"),
)


# --- counters -------------------------------------------------------------------------------------

_UP: Final = ("add", "inc", "increment")
_DOWN: Final = ("dec", "decrement", "subtract")


@dataclass(frozen=True, slots=True)
class CounterBounds:
    """add(n) or inc, dec, and read: within what was certainly and what was possibly added.

    ``initial``: what it shows at first.
    """

    name: ClassVar[str] = "counter-bounds"

    initial: int = 0

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=COUNTER_BOUNDS.fs, asks=("read",),
            begin=lambda case: _Bounds(case, self.initial), conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        reads = case.counts["read-count"]
        if not reads:
            case.doubts.append("The counter was never read.")
        return conclude(
            self.name,
            case,
            headline=f"{counted(reads, 'read')} of the counter within its bounds",
            words={
                "too-low": ("1 read missed what was added", "{n} reads missed what was added"),
                "too-high": (
                    "1 read showed more than was added",
                    "{n} reads showed more than was added",
                ),
            },
            broken=("too-low", "too-high"),
            disturbed_by=("write", "set", "reset", "cas"),
        )


Column = npt.NDArray[np.int64]
_MOST: Final = 2**62


@dataclass(slots=True)
class _Bounds:
    """Adds and reads as columns: sums are told apart when all ends are known."""

    case: Case
    initial: int
    amounts: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)  # calls of adds that did not fail
    done: list[int] = field(default_factory=list)  # their ends; _MOST if they crashed
    reads: list[tuple[int, int, int, int]] = field(default_factory=list)  # call, ret, value, place
    final: list[tuple[int, int, int, int]] = field(default_factory=list)  # those marked :final?
    unreadable: int = 0

    def take(self, op: Operation) -> None:
        if op.f == "read":
            if op.type == "ok" and type(op.result) is int and op.ret is not None:
                read = (op.call, op.ret, op.result, op.place)
                self.reads.append(read)
                if op.extra.get("final?") is True:
                    self.final.append(read)
            elif op.type == "ok":
                self.unreadable += 1
            return
        amount = 1 if op.argument is None else op.argument
        if op.type == "fail" or type(amount) is not int:
            self.unreadable += op.type != "fail"
            return
        self.amounts.append(amount if op.f in _UP else -amount)
        self.begun.append(op.call)
        self.done.append(_MOST if op.ret is None else op.ret)

    def end(self) -> None:
        case = self.case
        if self.final:
            case.notes.append(
                f"Judged are those marked :final? true, as Maelstrom has it: {len(self.final):,} of"
                f" {counted(len(self.reads), 'read')}."
            )
            self.reads = self.final
        case.counts["read-count"] += len(self.reads)
        case.counts["add-count"] += len(self.amounts)
        if self.unreadable:
            case.notes.append(
                f"Left out: {counted(self.unreadable, 'operation')} without a number."
            )
        if not self.reads:
            return
        times = np.array([(call, ret) for call, ret, _, _ in self.reads], dtype=np.int64)
        shown: Column = np.array([value for _, _, value, _ in self.reads], dtype=self._exact())
        lower, upper = self._bounds(times[:, 0], times[:, 1])
        for row in np.flatnonzero((shown < lower) | (shown > upper)).tolist():
            _, _, value, place = self.reads[row]
            kind = "too-low" if value < lower[row] else "too-high"
            if case.found(kind):
                bounds = f"between {lower[row]} and {upper[row]}"
                if lower[row] == upper[row]:
                    bounds = str(lower[row])
                case.tell(
                    kind,
                    f"the read at {case.at(place)} shows {value}, but the counter was {bounds}",
                    place,
                    lower=int(lower[row]),
                    upper=int(upper[row]),
                )

    def _exact(self) -> type:
        """What holds every sum: 64 bits, or else any integer, which takes longer."""
        most = abs(self.initial) + sum(map(abs, self.amounts))
        most = max(most, *(abs(value) for _, _, value, _ in self.reads))
        return np.int64 if most < _MOST else object

    def _bounds(self, call: Column, ret: Column) -> tuple[Column, Column]:
        """What each read may show. An add is certain if it ended before the read was invoked,
        possible if it began before the read returned."""
        amounts: Column = np.array(self.amounts, dtype=self._exact())
        begun, done = np.array(self.begun, dtype=np.int64), np.array(self.done, dtype=np.int64)

        def sums(ends: Column, wanted: Column, until: Column) -> Column:
            """Of the amounts ``wanted``, where ``ends`` are before ``until``."""
            order = np.argsort(ends[wanted], kind="stable")
            running = np.cumsum(np.concatenate((amounts[:0], [0], amounts[wanted][order])))
            return np.asarray(running[np.searchsorted(ends[wanted][order], until)])

        up, down = np.flatnonzero(amounts >= 0), np.flatnonzero(amounts < 0)
        lower = self.initial + sums(done, up, call) + sums(begun, down, ret)
        upper = self.initial + sums(begun, up, ret) + sums(done, down, call)
        return lower, upper


def _wants_counter(shape: Shape) -> bool:
    adds = set().union(*(shape.argument(f) for f in (*_UP, *_DOWN)))
    told = set().union(*(shape.result(f) for f in (*_UP, *_DOWN)))
    if adds <= {NIL} and told != {NIL}:
        return False  # it says what it came to: checkers/judges/orders.py
    return (
        shape.has("read")
        and shape.within("read", *_UP, *_DOWN)
        and bool(adds)
        and adds <= {INTEGER, NIL}
        and shape.result("read") <= {INTEGER, NIL}
        and bool(shape.result("read"))
    )


COUNTER_BOUNDS = JudgeRecord(
    name="counter-bounds",
    summary="reads of a counter are within what was added",
    make=CounterBounds,
    promise="A read shows no less than what had been added when it began, and no more than what"
    " may have been when it ended.",
    source="jepsen.checker/counter",
    fs=("read", *_UP, *_DOWN),
    by_key=True,
    wants=_wants_counter,
)
