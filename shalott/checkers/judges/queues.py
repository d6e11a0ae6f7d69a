"""Queues of a brought history: what comes out was put in, and what was put in comes out.

``queue`` is jepsen.checker/queue with an unordered queue: every dequeue takes something that some
enqueue had begun to bring. ``total-queue`` is jepsen.checker/total-queue: by the end all that was
acknowledged has come out. A ``drain`` returns a list of what it dequeued. Our own runs, whose
brokers redeliver and whose drains are observed, have a judge of their own
(checkers/queues/total_queue.py).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.passes import (
    Case,
    Operation,
    conclude,
    counted,
    elements_of,
    judge_objects,
    same,
)
from shalott.checkers.models.model import one_of
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.shape import Shape

_GIVE: Final = ("enqueue", "offer", "send", "publish", "put", "produce")
_TAKE: Final = ("dequeue", "poll", "receive", "consume", "take")
_FS: Final = (*_GIVE, *_TAKE, "drain")
_NOTHING: Final = ("exhausted", "empty")  # what a dequeue or drain says instead of a value
_WORDS: Final = {
    "lost": ("1 acknowledged element was lost", "{n} acknowledged elements were lost"),
    "unexpected": ("1 element came from nowhere", "{n} elements came from nowhere"),
    "duplicated": ("1 element came out twice", "{n} elements came out more than once"),
    "revived": (
        "1 element came out although its enqueue certainly failed",
        "{n} elements came out although their enqueues certainly failed",
    ),
}


def taken_by(op: Operation) -> Iterator[Hashable]:
    """What an operation that takes took, ready to be compared."""
    if op.f != "drain":
        if op.result is not None:
            yield same(op.result)
        return
    yield from elements_of(op.result) or ()


# --- nothing comes from nowhere -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queue:
    """enqueue(v), dequeue -> v, drain -> [v ...]: what comes out had been put in, as often."""

    name: ClassVar[str] = "queue"

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=_FS, asks=(*_TAKE, "drain"),
            begin=_Balance, conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        taken = case.counts["dequeued-count"]
        return conclude(
            self.name,
            case,
            headline=f"nothing from nowhere among {counted(taken, 'dequeued element')}",
            words=_WORDS,
            broken=("unexpected", "duplicated"),
        )


@dataclass(slots=True)
class _Balance:
    case: Case
    given: dict[Hashable, list[int]] = field(default_factory=dict)  # calls, in order
    taken: dict[Hashable, list[tuple[int, int]]] = field(default_factory=dict)  # ends, places

    def take(self, op: Operation) -> None:
        if op.f in _GIVE:
            insort(self.given.setdefault(same(op.argument), []), op.call)
        elif op.type == "ok" and op.ret is not None:
            for value in taken_by(op):
                self.case.counts["dequeued-count"] += 1
                self.taken.setdefault(value, []).append((op.ret, op.place))

    def end(self) -> None:
        case = self.case
        for value, ends in self.taken.items():
            calls = self.given.get(value, [])
            if not calls and value in _NOTHING:
                continue
            for number, (ret, place) in enumerate(ends):
                if number < len(calls) and calls[number] < ret:
                    continue
                kind = "duplicated" if number and number >= len(calls) else "unexpected"
                if case.found(kind):
                    times = sum(call < ret for call in calls)
                    case.tell(
                        kind,
                        f"{case.shown(value)} came out ({case.at(place)}) for the"
                        f" {ordinal(number + 1)} time, but had {_put_in(times)}",
                        place,
                    )


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{ending or 'th'}"


def _put_in(count: int) -> str:
    if not count:
        return "never been put in"
    return f"been put in {'once' if count == 1 else f'{count} times'}"


# --- and nothing stays ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TotalQueue:
    """enqueue(v), dequeue -> v, drain -> [v ...]: all that was acknowledged comes out by the end.

    ``duplicated``: what came out more often than it was put in is "allowed", as Jepsen has it, or
    "refused". ``crashed``: a dequeue that crashed "took-nothing", or "may-have-taken" one element.
    """

    name: ClassVar[str] = "total-queue"

    duplicated: str = "allowed"
    crashed: str = "took-nothing"

    def __post_init__(self) -> None:
        one_of("duplicated", self.duplicated, "allowed", "refused")
        one_of("crashed", self.crashed, "took-nothing", "may-have-taken")

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=_FS, asks=(*_TAKE, "drain"),
            begin=lambda case: _Totals(case, self.crashed), conclude=self._conclude,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        refused = ("duplicated",) if self.duplicated == "refused" else ()
        return conclude(
            self.name,
            case,
            headline=f"none of {counted(case.counts['acknowledged-count'], 'acknowledged element')}"
            " was lost",
            words=_WORDS,
            broken=("lost", "unexpected", *refused),
            by_the_end=("lost",),
        )


@dataclass(slots=True)
class _Totals:
    case: Case
    crashed: str
    attempts: Counter[Hashable] = field(default_factory=Counter)
    acknowledged: Counter[Hashable] = field(default_factory=Counter)
    failed: Counter[Hashable] = field(default_factory=Counter)
    taken: Counter[Hashable] = field(default_factory=Counter)
    place: dict[Hashable, int] = field(default_factory=dict)  # of the enqueue, or else of a dequeue
    out: dict[Hashable, int] = field(default_factory=dict)  # of the last dequeue
    doubtful: int = 0  # dequeues that may have taken one
    maybe: Counter[Hashable] = field(default_factory=Counter)  # taken by what crashed, as it says
    found_nothing: bool = False
    crashed_drains: int = 0

    def take(self, op: Operation) -> None:
        if op.f in _GIVE:
            value = same(op.argument)
            self.attempts[value] += 1
            self.place[value] = op.place
            if op.type != "info":
                (self.acknowledged if op.type == "ok" else self.failed)[value] += 1
        elif op.type == "ok":
            self.found_nothing |= op.f == "drain" or op.result is None
            for value in taken_by(op):
                self.taken[value] += 1
                self.out[value] = op.place
        elif op.type == "info" and op.f == "drain":
            self.crashed_drains += 1
        elif op.type == "info" and op.result is not None:
            self.maybe[same(op.result)] += 1
        elif op.type == "info":
            self.doubtful += 1
        else:
            self.found_nothing |= op.error is None or same(op.error) in _NOTHING

    def end(self) -> None:
        case = self.case
        for value in _NOTHING:
            if value not in self.attempts:
                self.taken.pop(value, None)
        came = self.taken & self.attempts
        case.counts["attempt-count"] += self.attempts.total()
        case.counts["acknowledged-count"] += self.acknowledged.total()
        case.counts["ok-count"] += came.total()
        case.counts["recovered-count"] += (came - self.acknowledged).total()
        lost = self.acknowledged - self.taken - self.maybe
        if self._may_be_elsewhere(lost.total()):
            case.counts["missing-count"] += lost.total()
        else:
            self._tell("lost", lost, "was acknowledged ({}), but never came out", self.place)
        self._tell(
            "unexpected",
            Counter({value: n for value, n in self.taken.items() if value not in self.attempts}),
            "came out ({}), but was never put in",
            self.out,
        )
        again = Counter({v: n for v, n in (self.taken - self.attempts).items() if self.attempts[v]})
        self._tell("duplicated", again, "came out ({}) more often than it was put in", self.out)
        certain = self.attempts - self.failed
        revived = (self.taken & self.attempts) - certain
        self._tell("revived", revived, "came out, though its enqueue failed ({})", self.place)

    def _may_be_elsewhere(self, lost: int) -> bool:
        """Whether what did not come out need not be lost; says so."""
        case = self.case
        if not lost:
            return False
        if self.crashed_drains:
            case.doubts.append(
                f"{case.of_key}{counted(lost, 'acknowledged element')} did not come out, but"
                f" {counted(self.crashed_drains, 'drain')} crashed, and may have taken that."
            )
            return True
        if self.doubtful:
            said = f"{counted(self.doubtful, 'dequeue')} crashed: each may have taken one element"
            if self.crashed == "may-have-taken" and lost <= self.doubtful:
                case.doubts.append(f"{case.of_key}{said}.")
                return True
            case.notes.append(f"{said} (crashed=may-have-taken judges it so).")
        if not self.found_nothing:
            case.notes.append("No drain, and no dequeue that found nothing: it may still be there.")
        return False

    def _tell(
        self, kind: str, values: Counter[Hashable], what: str, places: dict[Hashable, int]
    ) -> None:
        case = self.case
        for value, times in values.items():
            case.counts[f"{kind}-count"] += times - 1
            if case.found(kind) or len(case.kept) < 32:
                told = what.format(case.at(places[value]))
                more = f", {times} times" if times > 1 else ""
                case.tell(kind, f"{case.shown(value)} {told}{more}", places[value])


def _wants_total(shape: Shape) -> bool:
    return shape.has("drain") and shape.has_any(*_GIVE) and shape.within(*_FS)


QUEUE = JudgeRecord(
    name="queue",
    summary="what comes out of a queue had been put in",
    make=Queue,
    promise="Every element comes out at most as often as enqueues had begun to bring it by then.",
    source="jepsen.checker/queue",
    fs=_FS,
    by_key=True,
)

TOTAL_QUEUE = JudgeRecord(
    name="total-queue",
    summary="what goes into a queue comes out",
    make=TotalQueue,
    promise="Every element that was acknowledged comes out, and none that was never put in.",
    source="jepsen.checker/total-queue",
    fs=_FS,
    by_key=True,
    wants=_wants_total,
)
