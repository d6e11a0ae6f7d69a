"""Sessions' guarantees of a register: a read shows one write, and covers those that are older.

What is older than what is a premise, told by ``order``: nil is older than all, and of two writes of
one session the first; with "realtime" also one that had ended before the other was invoked, as it
is where a register has one order of its writes; with "numbers" the smaller value. What no premise
orders accuses no one, nor does a value that was written more than once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from shalott.checkers.judges.passes import Case, Operation, counted, same
from shalott.checkers.judges.session_sets import CAUSE_MISSING, OVERTAKEN, UNREAD_WRITE, WENT_BACK

_NO: Final = -1


@dataclass(slots=True)
class _Write:
    process: int
    number: int  # among those of its session
    call: int
    reads_before: int  # how many values its session had read when it was invoked
    ret: int | None = None
    place: int = _NO
    times: int = 1


@dataclass(slots=True)
class _Reader:
    """One session: what it wrote and read last, and what it has read."""

    writes: int = 0
    own: Hashable = None  # its last acknowledged write
    last: Hashable = None
    last_place: int = _NO
    first: dict[Hashable, int] = field(default_factory=dict)  # by value: its number among reads
    place: dict[Hashable, int] = field(default_factory=dict)
    latest: dict[int, Hashable] = field(default_factory=dict)  # by writer: the last of its writes
    followed: dict[int, Hashable] = field(default_factory=dict)  # by writer: with most read before


@dataclass(slots=True)
class Registers:
    """One register, judged by one guarantee (``kind`` is what breaks it)."""

    case: Case
    kind: str
    order: str
    written: dict[Hashable, _Write] = field(default_factory=dict)
    sessions: dict[int, _Reader] = field(default_factory=dict)

    def write(self, op: Operation) -> None:
        value = same(op.argument)
        session = self.sessions.setdefault(op.process, _Reader())
        found = self.written.get(value)
        if op.type == "invoke" or found is None:
            if found is not None:
                found.times += 1
                return
            found = self.written[value] = _Write(
                op.process, session.writes, op.call, len(session.first)
            )
            session.writes += 1
        found.place = op.place
        if op.type == "ok" and found.times == 1:
            found.ret = op.ret
            session.own = value

    def is_older(self, one: Hashable, other: Hashable) -> bool:
        """Whether ``one`` was certainly overwritten where ``other`` is covered."""
        if one == other:
            return False
        first, second = self.written.get(one), self.written.get(other)
        if second is None or second.times > 1:
            return False
        if first is None:
            return True  # it was there before all writes
        if first.times > 1:
            return False
        if self.order == "numbers" and type(one) is int and type(other) is int:
            return one < other
        if first.process == second.process and first.ret is not None:
            return first.number < second.number
        return self.order == "realtime" and first.ret is not None and first.ret < second.call

    def read(self, op: Operation) -> None:
        value = same(op.result)
        session = self.sessions.setdefault(op.process, _Reader())
        if self.kind == UNREAD_WRITE:
            self._judge_own(op, session, value)
        elif self.kind == WENT_BACK:
            self._judge_last(op, session, value)
        elif self.kind == OVERTAKEN:
            self._judge_writers(op, session, value)
        else:
            self._judge_causes(op, session, value)
        session.last, session.last_place = value, op.place
        session.place[value] = op.place
        session.first.setdefault(value, len(session.first))
        self._note_writer(session, value)

    def _note_writer(self, session: _Reader, value: Hashable) -> None:
        write = self.written.get(value)
        if write is None or write.times > 1:
            return
        latest = self.written.get(session.latest.get(write.process))
        if latest is None or write.number > latest.number:
            session.latest[write.process] = value
        followed = self.written.get(session.followed.get(write.process))
        if followed is None or write.reads_before > followed.reads_before:
            session.followed[write.process] = value

    def _judge_own(self, op: Operation, session: _Reader, value: Hashable) -> None:
        if session.own is None:
            return
        case = self.case
        case.counts["judged-count"] += 1
        if self.is_older(value, session.own) and case.found(UNREAD_WRITE):
            place = self.written[session.own].place
            case.tell(
                UNREAD_WRITE,
                f"process {op.process} wrote {case.shown(session.own)} ({case.at(place)}), then"
                f" read {case.shown(value)} ({case.at(op.place)}), which is older",
                place,
                op.place,
            )

    def _judge_last(self, op: Operation, session: _Reader, value: Hashable) -> None:
        if session.last_place == _NO:
            return
        case, last = self.case, session.last
        case.counts["judged-count"] += 1
        write = self.written.get(value)
        is_back = value != last and value in session.first and (write is None or write.times == 1)
        if not is_back and not self.is_older(value, last):
            return
        if case.found(WENT_BACK):
            why = "which is older"
            if is_back:
                why = f"which it had read before that ({case.at(session.place[value])})"
            case.tell(
                WENT_BACK,
                f"process {op.process} read {case.shown(last)} ({case.at(session.last_place)}),"
                f" then {case.shown(value)} ({case.at(op.place)}), {why}",
                session.last_place,
                op.place,
            )

    def _judge_writers(self, op: Operation, session: _Reader, value: Hashable) -> None:
        write = self.written.get(value)
        if write is None or write.times > 1 or write.ret is None:
            return
        case, later = self.case, session.latest.get(write.process)
        if later is None:
            return
        case.counts["judged-count"] += 1
        newer = self.written[later]
        if newer.number > write.number and newer.times == 1 and case.found(OVERTAKEN):
            case.tell(
                OVERTAKEN,
                f"process {write.process} wrote {case.shown(value)} ({case.at(write.place)}), then"
                f" {case.shown(later)} ({case.at(newer.place)}); process {op.process} read"
                f" {case.shown(later)} ({case.at(session.place[later])}), then {case.shown(value)}"
                f" ({case.at(op.place)})",
                write.place,
                newer.place,
                op.place,
            )

    def _judge_causes(self, op: Operation, session: _Reader, value: Hashable) -> None:
        """A session that wrote after it had read ``value`` was read already: that covers it."""
        case = self.case
        write = self.written.get(value)
        if write is not None and write.times > 1:
            return
        for process, later in session.followed.items():
            newer = self.written[later]
            if newer.reads_before:
                case.counts["judged-count"] += 1
            if later == value or newer.times > 1:
                continue
            read_first = self.sessions[process].first.get(value)
            if read_first is None or read_first >= newer.reads_before:
                continue
            if case.found(CAUSE_MISSING):
                case.tell(
                    CAUSE_MISSING,
                    f"process {process} had read {case.shown(value)} before it wrote"
                    f" {case.shown(later)} ({case.at(newer.place)}); process {op.process} read"
                    f" {case.shown(later)} ({case.at(session.place[later])}), then"
                    f" {case.shown(value)} ({case.at(op.place)})",
                    newer.place,
                    session.place[later],
                    op.place,
                )

    def end(self) -> None:
        again = sum(write.times > 1 for write in self.written.values())
        if again:
            self.case.notes.append(
                f"{self.case.of_key}Written more than once: {counted(again, 'value')}, whose"
                " reads may cover either write."
            )
