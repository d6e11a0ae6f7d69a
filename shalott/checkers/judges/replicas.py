"""One log, read from several replicas: each read is a beginning of it.

Replicas may lag, but all hold one order. Two reads of which neither is the other's beginning differ
at some position: one skips what the other has (a gap), both have the same in another order, or they
went apart. No read can be known to be the right one, so both are named. Besides: a replica's log
does not become shorter, nothing is in it twice or was never appended, and what had been
acknowledged before another append was invoked stands before that.

A read returns the values, or a map with :log (or :values) and where it read: :replica or :node in
the map or in the entry, ``[replica values]``, and otherwise the process stands for its replica.
Memory grows with the log, not with the reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.passes import (
    Case,
    Operation,
    conclude,
    elements_of,
    fields_of,
    judge_objects,
    same,
)
from shalott.checkers.models.model import one_of
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.shape import EMPTY, KEYED, LIST, MAP, NIL, PAIR, Shape

_APPEND: Final = ("append", "send", "add", "write", "publish", "produce")
_READ: Final = ("read", "read-log", "log")
_WHERE: Final = ("replica", "node", "server", "broker")
_LISTS: Final = ("log", "values", "entries", "messages")
_KINDS: Final = (
    *("diverged", "gap", "reordered", "shrunk"),
    *("duplicated", "unexpected", "lost", "overtaken"),
)


@dataclass(frozen=True, slots=True)
class ReplicaLogs:
    """append(v), each v once, and reads of the log from replicas: all are beginnings of one log.

    ``shrunk``: that a replica shows less than before is "refused", or "allowed" (a replica that
    starts anew).
    """

    name: ClassVar[str] = "replica-logs"

    shrunk: str = "refused"

    def __post_init__(self) -> None:
        one_of("shrunk", self.shrunk, "refused", "allowed")

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=REPLICA_LOGS.fs, asks=(),
            begin=_Log, conclude=self._conclude, invocations=True,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        reads = case.counts["read-count"]
        if not reads:
            case.doubts.append("The log was never read.")
        kinds = tuple(kind for kind in _KINDS if kind != "shrunk" or self.shrunk == "refused")
        replicas = case.counts["replica-count"]
        return conclude(
            self.name,
            case,
            headline=f"{reads:,} reads of {replicas} replicas were beginnings of one log",
            words={
                "diverged": (
                    "two replicas' logs went apart",
                    "replicas' logs went apart, {n} times",
                ),
                "gap": ("a replica's log has a gap", "replicas' logs have gaps, {n} times"),
                "reordered": (
                    "two replicas have two orders",
                    "replicas differ in order, {n} times",
                ),
                "shrunk": ("a replica's log became shorter", "replicas' logs shrank, {n} times"),
                "duplicated": ("1 value is in the log twice", "{n} values are in a log twice"),
                "unexpected": ("1 value came from nowhere", "{n} values came from nowhere"),
                "lost": ("1 acknowledged value is missing", "{n} acknowledged values are missing"),
                "overtaken": (
                    "a value stands before one that had been acknowledged before",
                    "values stand before ones that had been acknowledged before, {n} times",
                ),
            },
            broken=kinds,
        )


@dataclass(slots=True)
class _Replica:
    """What it showed: ends of reads, and the longest until then with its place."""

    ends: list[int] = field(default_factory=list)
    longest: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Log:
    case: Case
    call: dict[Hashable, int] = field(default_factory=dict)  # of appends
    begun: dict[Hashable, int] = field(default_factory=dict)  # the place of the invocation
    ended: dict[Hashable, tuple[int, int]] = field(default_factory=dict)  # acknowledged: end, place
    log: list[Hashable] = field(default_factory=list)  # the longest so far
    position: dict[Hashable, int] = field(default_factory=dict)
    shown_by: list[tuple[int, int, Hashable]] = field(default_factory=list)  # until, place, replica
    replicas: dict[Hashable, _Replica] = field(default_factory=dict)
    told: set[tuple[str, Hashable]] = field(default_factory=set)
    unknown: dict[Hashable, int] = field(default_factory=dict)  # read before it was appended

    def take(self, op: Operation) -> None:
        if op.f in _APPEND:
            value = same(op.argument if op.argument is not None else op.result)
            self.call.setdefault(value, op.call)
            self.begun.setdefault(value, op.place)
            if op.type == "ok" and op.ret is not None:
                self.ended.setdefault(value, (op.ret, op.place))
        elif op.type == "ok" and op.ret is not None:
            replica, values = _replica_and_values(op)
            if values is not None:
                self._read(op, op.ret, replica, values)

    def _read(self, op: Operation, ret: int, replica: Hashable, values: list[Hashable]) -> None:
        self.case.counts["read-count"] += 1
        self._judge_length(op, ret, replica, len(values))
        both = min(len(values), len(self.log))
        agrees = values[:both] == self.log[:both]
        if len(values) > both or not agrees:  # all that was known of the log is judged already
            self._judge_alone(op, values, both if agrees else 0)
        if not agrees:
            at = next(at for at in range(both) if values[at] != self.log[at])
            self._tell_difference(op, replica, values, at)
        elif len(values) > both:
            for at, value in enumerate(values[both:], both):
                self.position.setdefault(value, at)
            self.log += values[both:]
            self.shown_by.append((len(self.log), op.place, replica))

    def _judge_alone(self, op: Operation, values: list[Hashable], begin: int) -> None:
        """What is wrong with one read by itself; each value is told once."""
        case = self.case
        if len(set(values)) < len(values):
            for value, times in Counter(values).items():
                if times > 1 and self._is_new("duplicated", value) and case.found("duplicated"):
                    told = f"the read at {case.at(op.place)} has {case.shown(value)} {times} times"
                    case.tell("duplicated", told, op.place)
        for value in values[begin:]:
            if value not in self.call:
                self.unknown.setdefault(value, op.place)

    def _is_new(self, kind: str, value: Hashable) -> bool:
        if (kind, value) in self.told:
            return False
        self.told.add((kind, value))
        return True

    def _judge_length(self, op: Operation, ret: int, replica: Hashable, length: int) -> None:
        case = self.case
        known = self.replicas.setdefault(replica, _Replica())
        before = bisect_left(known.ends, op.call)
        if before and length < known.longest[before - 1][0] and case.found("shrunk"):
            longest, place = known.longest[before - 1]
            case.tell(
                "shrunk",
                f"replica {case.shown(replica)} had {longest:,} values ({case.at(place)}), then"
                f" {length:,} ({case.at(op.place)})",
                place,
                op.place,
            )
        last = known.longest[-1] if known.longest else (-1, -1)
        known.ends.append(ret)
        known.longest.append(max(last, (length, op.place), key=lambda each: each[0]))

    def _tell_difference(
        self, op: Operation, replica: Hashable, values: list[Hashable], at: int
    ) -> None:
        case = self.case
        here, there = values[at], self.log[at]
        is_there = self.position.get(here, -1) > at
        is_here = there in values[at:]
        kind = "reordered" if is_here and is_there else "gap" if is_here or is_there else "diverged"
        if not case.found(kind):
            return
        _, place, other = next(each for each in self.shown_by if each[0] > at)
        what = f"position {at}: {case.shown(here)} on {case.shown(replica)} ({case.at(op.place)}),"
        what += f" {case.shown(there)} on {case.shown(other)} ({case.at(place)})"
        if kind == "gap":
            missing, who = (there, replica) if is_there else (here, other)
            what += f"; {case.shown(who)} lacks {case.shown(missing)} and goes on behind it"
        case.tell(kind, what, place, op.place, position=at)

    def end(self) -> None:
        case = self.case
        case.counts["replica-count"] += len(self.replicas)
        case.counts["acknowledged-count"] += len(self.ended)
        case.counts["length"] += len(self.log)
        if self.call:  # else no append is in this history
            for value, place in self.unknown.items():
                if case.found("unexpected"):
                    told = f"the read at {case.at(place)} has {case.shown(value)}, which by then no"
                    case.tell("unexpected", f"{told} append had brought", place)
        self._judge_order()
        behind = sum(value not in self.position for value in self.ended)
        if behind and not case.counts["lost-count"]:
            case.notes.append(f"{behind:,} acknowledged values are in no read.")

    def _judge_order(self) -> None:
        """What had been acknowledged before another append was invoked stands before that: of all
        that stand behind a value, or nowhere, none ended before its append was invoked."""
        size = len(self.log)
        by_position = sorted(
            self.ended, key=lambda value: self.position.get(value, size), reverse=True
        )
        earliest: Hashable = None
        earliest_end = -1
        at = 0
        for position in range(size - 1, -1, -1):
            while at < len(by_position):
                value = by_position[at]
                if self.position.get(value, size) <= position:
                    break
                if earliest_end < 0 or self.ended[value][0] < earliest_end:
                    earliest, earliest_end = value, self.ended[value][0]
                at += 1
            later = self.log[position]
            if 0 <= earliest_end < self.call.get(later, -1):
                self._tell_order(earliest, later, position)

    def _tell_order(self, earlier: Hashable, later: Hashable, position: int) -> None:
        case = self.case
        kind = "overtaken" if earlier in self.position else "lost"
        if not self._is_new(kind, earlier) or not case.found(kind):
            return
        place, begun = self.ended[earlier][1], self.begun[later]
        where = "is in no log"
        if kind == "overtaken":
            where = f"stands behind it, at {self.position[earlier]}"
        case.tell(
            kind,
            f"{case.shown(later)} stands at {position}, but {case.shown(earlier)}, which had been"
            f" acknowledged ({case.at(place)}) before its append was invoked ({case.at(begun)}),"
            f" {where}",
            place,
            begun,
        )


def _replica_and_values(op: Operation) -> tuple[Hashable, list[Hashable] | None]:
    where = next((op.extra[name] for name in _WHERE if name in op.extra), f"process {op.process}")
    fields = fields_of(op.result)
    if fields is not None:
        where = next((fields[name] for name in _WHERE if name in fields), where)
        listed = next((fields[name] for name in _LISTS if name in fields), None)
        return same(where), _in_order(listed)
    value = op.result
    if isinstance(value, tuple) and len(value) == 2:
        first, second = value
        if isinstance(second, tuple) and not isinstance(first, tuple):
            return same(first), _in_order(second)
    return same(where), _in_order(value)


def _in_order(value: Hashable) -> list[Hashable] | None:
    """A vector's values; of [offset value] pairs from 0 on the second ones."""
    if not isinstance(value, tuple):
        return None
    values = elements_of(value)
    if values and all(isinstance(each, tuple) and len(each) == 2 for each in values):
        pairs = [each for each in values if isinstance(each, tuple)]
        if [offset for offset, _ in pairs] == list(range(len(pairs))):
            return [each for _, each in pairs]
    return values


def _wants(shape: Shape) -> bool:
    reads = shape.result("read") | shape.result("read-log")
    return (
        shape.has_any("append", "send")
        and shape.has_any("read", "read-log")
        and shape.within(*_APPEND, *_READ)
        and bool(reads)
        and reads <= {LIST, PAIR, KEYED, EMPTY, MAP}
        and shape.argument("read") <= {NIL}
    )


REPLICA_LOGS = JudgeRecord(
    name="replica-logs",
    summary="what replicas show of a log are beginnings of one log",
    make=ReplicaLogs,
    promise="Of two reads from any replicas one is the other's beginning, and what was acknowledged"
    " before another append was invoked stands before it.",
    source="Jepsen's analyses of logs; Raft's log matching (Ongaro and Ousterhout, 2014)",
    fs=(*_APPEND, *_READ),
    wants=_wants,
)
